// The numbers of groups by the hashes of their keys.
#ifndef REDUCED_CLIENT_LIB_GROUP_TABLE_H_
#define REDUCED_CLIENT_LIB_GROUP_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

namespace reduced::client {

// Bytes from an address on, as a number.
template <class T>
std::uint64_t LoadWord(const char* bytes) {
  T word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Whether two texts are equal: those of 8 to 16 bytes, as most are, by two words each.
inline bool IsSame(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  if (a.size() < 8 || a.size() > 16) return a == b;
  const std::size_t last = a.size() - 8;
  return ((LoadWord<std::uint64_t>(a.data()) ^ LoadWord<std::uint64_t>(b.data())) |
          (LoadWord<std::uint64_t>(a.data() + last) ^ LoadWord<std::uint64_t>(b.data() + last))) == 0;
}
inline bool IsSame(std::uint64_t a, std::uint64_t b) { return a == b; }

// Hashes by a secret of this process: wyhash, whose constants are the secret.
//
// Source: Wang Yi et al., "Modern non-cryptographic hash function and pseudorandom number generator" (2021).
class KeyHash {
 public:
  // `mask`: of the bits of a hash of text; less than all of them are for tests of keys that collide.
  explicit KeyHash(std::uint64_t mask) : mask_(mask) {}

  // A number that equal keys have in common: of an integer itself, so that no others have it.
  std::uint64_t Of(std::uint64_t key) const { return key; }
  std::uint64_t Of(std::string_view key) const {
    const char* bytes = key.data();
    const std::size_t size = key.size();
    std::uint64_t first = 0, last = 0, sum = secret_[0];
    if (size > 16) {
      std::size_t left = size;
      for (; left > 16; left -= 16, bytes += 16) {
        sum = Mix(LoadWord<std::uint64_t>(bytes) ^ secret_[1], LoadWord<std::uint64_t>(bytes + 8) ^ sum);
      }
      first = LoadWord<std::uint64_t>(bytes + left - 16);
      last = LoadWord<std::uint64_t>(bytes + left - 8);
    } else if (size >= 8) {
      first = LoadWord<std::uint64_t>(bytes);
      last = LoadWord<std::uint64_t>(bytes + size - 8);
    } else if (size >= 4) {
      first = LoadWord<std::uint32_t>(bytes);
      last = LoadWord<std::uint32_t>(bytes + size - 4);
    } else if (size > 0) {
      first = LoadWord<std::uint8_t>(bytes) << 16 | LoadWord<std::uint8_t>(bytes + size / 2) << 8 |
              LoadWord<std::uint8_t>(bytes + size - 1);
    }
    return Mix(secret_[2] ^ size, Mix(first ^ secret_[1], last ^ sum)) & mask_;
  }

  // Spreads such numbers over all 64 bits.
  std::uint64_t Spread(std::uint64_t hash) const { return Mix(hash ^ secret_[0], secret_[3]); }

 private:
  // The halves of the product.
  static std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
  }
  using Secret = std::array<std::uint64_t, 4>;
  static const Secret& Random() {
    static const Secret secret = [] {
      std::random_device random;
      Secret words;
      for (std::uint64_t& word : words) word = std::uint64_t{random()} << 32 | random() | 1;
      return words;
    }();
    return secret;
  }

  const Secret secret_ = Random();
  const std::uint64_t mask_;
};

// The numbers of the groups by the hashes of their keys: open addressing, at most half full.
class GroupTable {
 public:
  explicit GroupTable(const KeyHash& hash) : hash_(hash), entries_(64) {}

  // The number of the group whose key has the hash and which is_same(number) confirms, or that of a new group.
  template <class IsSame>
  std::pair<std::int64_t, bool> Find(std::uint64_t hash, const IsSame& is_same) {
    for (std::size_t at = hash_.Spread(hash);; ++at) {
      Entry& entry = entries_[at & (entries_.size() - 1)];
      if (entry.number == kFree) {
        entry = {hash, groups_};
        if (2 * static_cast<std::size_t>(groups_ + 1) > entries_.size()) Grow();
        return {groups_++, true};
      }
      if (entry.hash == hash && is_same(entry.number)) return {entry.number, false};
    }
  }
  std::int64_t groups() const { return groups_; }

 private:
  static constexpr std::int64_t kFree = -1;
  struct Entry {
    std::uint64_t hash = 0;
    std::int64_t number = kFree;
  };

  void Grow() {
    std::vector<Entry> entries(2 * entries_.size());
    for (const Entry& entry : entries_) {
      if (entry.number == kFree) continue;
      std::size_t at = hash_.Spread(entry.hash);
      while (entries[at & (entries.size() - 1)].number != kFree) ++at;
      entries[at & (entries.size() - 1)] = entry;
    }
    entries_ = std::move(entries);
  }

  KeyHash hash_;
  std::vector<Entry> entries_;
  std::int64_t groups_ = 0;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_GROUP_TABLE_H_
