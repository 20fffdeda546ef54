// Gives the rows of one column of keys the numbers of their groups.
#ifndef REDUCED_CLIENT_LIB_KEY_ENCODER_H_
#define REDUCED_CLIENT_LIB_KEY_ENCODER_H_

#include <cstdint>

#include "client/lib/key_rows.h"
#include "reduced/group_keys.h"

namespace reduced::client {

// What an encoder is told.
struct KeyEncoding {
  bool sort = true;
  bool group_missing = false;                   // a missing key is a key
  std::uint64_t hash_mask = ~std::uint64_t{0};  // of KeyHash
  std::int64_t few_groups = 1 << 13;            // which a table of each thread may have
};

// Key: as KeyRows has it. Code: std::int32_t for less than 2^31 rows, or std::int64_t. Throws std::bad_alloc.
template <class Key, class Code>
KeyCodes EncodeRows(const KeyRows<Key>& rows, const KeyEncoding& how);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_KEY_ENCODER_H_
