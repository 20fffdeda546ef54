// Keys that ascend are numbered as they come. Integers that nearly fill a range are looked up in a table of the range.
// Other keys are hashed: each thread takes blocks of rows and has a table of its own, and the tables are merged. Where
// a table would grow larger than the cache, the rows are sorted into parts by their hashes instead, and each part is
// hashed by itself: only there can rows of one key be, so nothing is merged, and its table stays in the cache.
//
// Source: S. Manegold, P. Boncz, M. Kersten, "Optimizing main-memory join on modern hardware" (2002), for radix
// partitioning; V. Leis et al., "Morsel-driven parallelism" (2014), for blocks of rows on threads.
#include "client/lib/key_encoder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/lib/for_each.h"
#include "client/lib/group_table.h"

namespace reduced::client {
namespace {

template <class Key, class Code>
class KeyEncoder {
 public:
  KeyEncoder(const KeyRows<Key>& rows, const KeyEncoding& how)
      : rows_(rows),
        how_(how),
        hash_(how.hash_mask),
        blocks_((rows.count() + kBlockRows - 1) / kBlockRows),
        codes_(std::make_unique_for_overwrite<Code[]>(static_cast<std::size_t>(rows.count()))),
        first_missing_(rows.count()) {}

  // To be called once. Throws std::bad_alloc.
  KeyCodes Run() {
    const bool done = ByOrder() || ByRange() || ByTables(how_.few_groups) || ByParts();
    if (!done) ByTables(std::numeric_limits<std::int64_t>::max());
    return KeyCodes(std::move(codes_), rows_.count(), std::move(first_));
  }

 private:
  static constexpr bool kText = std::is_same_v<Key, std::string_view>;
  static constexpr std::int64_t kBlockRows = 1 << 14;  // of which a number has 16 bits
  static constexpr std::int64_t kRunRows = 1 << 10;    // read at once: their keys stay in the L1 cache

  // Calls each(worker, begin, end) for the blocks of rows, on several threads.
  template <class Each>
  void ForBlocks(const Each& each) const {
    ForEach(blocks_, [&](std::int64_t worker, std::int64_t block) {
      each(worker, block * kBlockRows, std::min((block + 1) * kBlockRows, rows_.count()));
    });
  }

  // Calls each(row, key, whether there is one) for rows [begin, end) in their order, until it returns false, if it
  // returns anything. Returns whether it came to the end.
  template <class Each>
  bool ForRows(std::int64_t begin, std::int64_t end, const Each& each) const {
    std::array<Key, kRunRows> keys;
    std::array<std::uint8_t, kRunRows> there;
    const auto call = [&](std::int64_t row, const Key& key, bool is_there) {
      if constexpr (std::is_same_v<decltype(each(row, key, is_there)), bool>) {
        return each(row, key, is_there);
      } else {
        each(row, key, is_there);
        return true;
      }
    };
    for (std::int64_t run = begin; run < end; run += kRunRows) {
      const std::int64_t run_end = std::min(run + kRunRows, end);
      if (rows_.Read(run, run_end, keys.data(), there.data())) {
        for (std::int64_t row = run; row < run_end; ++row) {
          if (!call(row, keys[row - run], true)) return false;
        }
      } else {
        for (std::int64_t row = run; row < run_end; ++row) {
          if (!call(row, keys[row - run], there[row - run] != 0)) return false;
        }
      }
    }
    return true;
  }

  static void LowerTo(std::atomic<std::int64_t>* least, std::int64_t row) {
    std::int64_t before = least->load(std::memory_order_relaxed);
    while (row < before && !least->compare_exchange_weak(before, row, std::memory_order_relaxed)) {
    }
  }

  // Of keys that ascend: a group begins where a key is another than the one before. False: they don't, or one is
  // missing.
  bool ByOrder() {
    std::vector<std::vector<std::int64_t>> firsts(static_cast<std::size_t>(blocks_));
    std::atomic<bool> ascend = true;
    ForBlocks([&](std::int64_t /*worker*/, std::int64_t begin, std::int64_t end) {
      if (!ascend.load(std::memory_order_relaxed)) return;
      std::vector<std::int64_t>& own = firsts[begin / kBlockRows];
      Key before = begin > 0 ? rows_.At(begin - 1) : Key{};
      const bool ascends = ForRows(begin, end, [&](std::int64_t row, const Key& key, bool there) {
        if (!there || (row > 0 && Less(key, before))) return false;
        if (row == 0 || !IsSame(key, before)) own.push_back(row);
        before = key;
        codes_[row] = static_cast<Code>(own.size());  // groups of the block so far
        return true;
      });
      if (!ascends) ascend.store(false, std::memory_order_relaxed);
    });
    if (!ascend) return false;
    std::vector<Code> base;  // the code before that of the first group that begins in a block
    for (const std::vector<std::int64_t>& own : firsts) {
      base.push_back(static_cast<Code>(first_.size()) - 1);
      first_.insert(first_.end(), own.begin(), own.end());
    }
    ForBlocks([&](std::int64_t /*worker*/, std::int64_t begin, std::int64_t end) {
      const Code before = base[begin / kBlockRows];
      for (std::int64_t row = begin; row < end; ++row) codes_[row] += before;
    });
    return true;
  }

  // The table of a range has the first row of each key, and then its code. False: the keys are far apart, or text.
  bool ByRange() {
    if constexpr (kText) {
      return false;
    } else {
      std::vector<std::pair<Key, Key>> bounds(static_cast<std::size_t>(blocks_));
      ForBlocks([&](std::int64_t /*worker*/, std::int64_t begin, std::int64_t end) {
        Key low = ~Key{0}, high = 0;
        ForRows(begin, end, [&](std::int64_t /*row*/, Key key, bool there) {
          low = std::min(low, there ? key : low);
          high = std::max(high, there ? key : high);
        });
        bounds[begin / kBlockRows] = {low, high};
      });
      Key low = ~Key{0}, high = 0;
      for (const auto& [least, largest] : bounds) {
        low = std::min(low, least);
        high = std::max(high, largest);
      }
      if (low <= high && high - low > static_cast<Key>(rows_.count() / 2 + kRunRows)) return false;
      const std::size_t range = low <= high ? high - low + 1 : 0;
      const std::unique_ptr<std::atomic<Code>[]> table(new std::atomic<Code>[range]);
      constexpr Code kNone = std::numeric_limits<Code>::max();
      for (std::size_t i = 0; i < range; ++i) table[i].store(kNone, std::memory_order_relaxed);
      ForBlocks([&](std::int64_t /*worker*/, std::int64_t begin, std::int64_t end) {
        ForRows(begin, end, [&](std::int64_t row, Key key, bool there) {
          if (!there) return LowerTo(&first_missing_, row);
          std::atomic<Code>& first = table[key - low];
          Code before = first.load(std::memory_order_relaxed);
          while (row < before &&
                 !first.compare_exchange_weak(before, static_cast<Code>(row), std::memory_order_relaxed)) {
          }
        });
      });
      for (std::size_t i = 0; i < range; ++i) {
        const Code first = table[i].load(std::memory_order_relaxed);
        if (first != kNone) groups_.push_back({low + i, first});
      }
      Rank();
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        table[groups_[g].key - low].store(code_of_[g], std::memory_order_relaxed);
      }
      ForBlocks([&](std::int64_t /*worker*/, std::int64_t begin, std::int64_t end) {
        ForRows(begin, end, [&](std::int64_t row, Key key, bool there) {
          codes_[row] = there ? table[key - low].load(std::memory_order_relaxed) : code_of_missing_;
        });
      });
      return true;
    }
  }

  struct Group {
    Key key;
    std::int64_t first;  // row
  };

  // The groups of the blocks that one worker took.
  struct Worker {
    explicit Worker(const KeyHash& hash) : table(hash) {}

    GroupTable table;
    std::vector<Group> groups{};
    std::vector<Code> codes{};  // of each, and before the first one that of missing keys
  };

  // False: a worker has found more groups than `most`.
  bool ByTables(std::int64_t most) {
    std::vector<Worker> workers(static_cast<std::size_t>(WorkersFor(blocks_)), Worker(hash_));
    std::vector<std::int64_t> worker_of(static_cast<std::size_t>(blocks_));
    std::atomic<bool> too_many = false;
    ForBlocks([&](std::int64_t w, std::int64_t begin, std::int64_t end) {
      if (too_many.load(std::memory_order_relaxed)) return;
      Worker& worker = workers[w];
      worker_of[begin / kBlockRows] = w;
      Key last{};
      Code number = -1;  // of the last key that there was
      ForRows(begin, end, [&](std::int64_t row, const Key& key, bool there) {
        if (!there) {
          codes_[row] = -1;
          return LowerTo(&first_missing_, row);
        }
        if (number < 0 || !IsSame(key, last)) {
          number = static_cast<Code>(Number(&worker, key, row));
          last = key;
        }
        codes_[row] = number;
      });
      if (worker.table.groups() > most) too_many.store(true, std::memory_order_relaxed);
    });
    if (too_many) return false;
    Worker all(hash_);
    for (Worker& worker : workers) {
      for (const Group& group : worker.groups) {
        const std::int64_t number = Number(&all, group.key, group.first);
        all.groups[number].first = std::min(all.groups[number].first, group.first);
        worker.codes.push_back(static_cast<Code>(number));
      }
    }
    groups_ = std::move(all.groups);
    Rank();
    for (Worker& worker : workers) {
      for (Code& code : worker.codes) code = code_of_[code];
      worker.codes.insert(worker.codes.begin(), code_of_missing_);
    }
    ForBlocks([&](std::int64_t /*worker*/, std::int64_t begin, std::int64_t end) {
      const Code* const codes = workers[worker_of[begin / kBlockRows]].codes.data() + 1;
      for (std::int64_t row = begin; row < end; ++row) codes_[row] = codes[codes_[row]];
    });
    return true;
  }

  std::int64_t Number(Worker* worker, const Key& key, std::int64_t row) const {
    const auto is_same = [&](std::int64_t number) { return !kText || IsSame(worker->groups[number].key, key); };
    const auto [number, is_new] = worker->table.Find(hash_.Of(key), is_same);
    if (is_new) worker->groups.push_back({key, row});
    return number;
  }

  // Sorts the rows of each block by the parts of their hashes, so that a part is found in pieces, in the order of the
  // rows. What has one hash is then taken for one key, and compared when all codes are known, block by block again.
  // False: two keys have one hash.
  bool ByParts() {
    const auto count = static_cast<std::size_t>(rows_.count());
    const auto hashes = std::make_unique_for_overwrite<std::uint64_t[]>(count);  // then the numbers of the groups
    const auto places = std::make_unique_for_overwrite<std::uint16_t[]>(count);  // of the rows in the block
    const auto starts =
        std::make_unique_for_overwrite<std::uint16_t[]>(static_cast<std::size_t>(blocks_) * (kParts + 1));
    ForBlocks([&](std::int64_t /*worker*/, std::int64_t begin, std::int64_t end) {
      SortBlock(begin, end, hashes.get(), places.get(), starts.get() + begin / kBlockRows * (kParts + 1));
    });
    std::vector<std::vector<std::int64_t>> firsts(kParts);
    ForEach(kParts, [&](std::int64_t /*worker*/, std::int64_t part) {
      GroupTable table(hash_);
      for (std::int64_t block = 0; block < blocks_; ++block) {
        const std::uint16_t* const start = starts.get() + block * (kParts + 1) + part;
        for (std::int64_t i = block * kBlockRows + start[0]; i < block * kBlockRows + start[1]; ++i) {
          const auto [number, is_new] = table.Find(hashes[i], [](std::int64_t /*number*/) { return true; });
          if (is_new) firsts[part].push_back(block * kBlockRows + places[i]);
          hashes[i] = static_cast<std::uint64_t>(number);
        }
      }
    });
    std::vector<std::int64_t> base(kParts);  // the number of the first group of each part
    std::int64_t groups = 0;
    for (std::int64_t part = 0; part < kParts; ++part) {
      base[part] = groups;
      groups += std::ssize(firsts[part]);
    }
    groups_.resize(static_cast<std::size_t>(groups));
    ForEach(kParts, [&](std::int64_t /*worker*/, std::int64_t part) {
      for (std::size_t i = 0; i < firsts[part].size(); ++i) {
        groups_[base[part] + i] = {rows_.At(firsts[part][i]), firsts[part][i]};
      }
    });
    Rank();
    std::atomic<bool> collide = false;
    ForBlocks([&](std::int64_t /*worker*/, std::int64_t begin, std::int64_t end) {
      const std::uint16_t* const start = starts.get() + begin / kBlockRows * (kParts + 1);
      std::fill(codes_.get() + begin, codes_.get() + end, Code{-1});
      for (std::int64_t part = 0; part < kParts; ++part) {
        for (std::int64_t i = begin + start[part]; i < begin + start[part + 1]; ++i) {
          codes_[begin + places[i]] = static_cast<Code>(base[part] + static_cast<std::int64_t>(hashes[i]));
        }
      }
      if constexpr (kText) {
        // The keys of groups are all over memory: those of later rows are fetched meanwhile.
        ForRows(begin, end, [&](std::int64_t row, const Key& key, bool there) {
          constexpr std::int64_t kAhead = 16;  // rows
          const auto group_at = [&](std::int64_t later) {
            return &groups_[std::max<Code>(codes_[std::min(later, end - 1)], 0)];
          };
          __builtin_prefetch(group_at(row + 2 * kAhead));
          __builtin_prefetch(group_at(row + kAhead)->key.data());
          if (there && !IsSame(groups_[codes_[row]].key, key)) collide.store(true, std::memory_order_relaxed);
        });
      }
      for (std::int64_t row = begin; row < end; ++row) {
        codes_[row] = codes_[row] < 0 ? code_of_missing_ : code_of_[codes_[row]];
      }
    });
    return !collide;
  }

  // Writes the hashes of a block's rows to `hashes`, sorted by their parts. Rows without a key are in no part.
  void SortBlock(std::int64_t begin, std::int64_t end, std::uint64_t* hashes, std::uint16_t* places,
                 std::uint16_t* starts) {
    struct Hashed {
      std::array<std::uint64_t, kBlockRows> hashes;
      std::array<std::uint16_t, kBlockRows> parts;
    };
    thread_local const auto hashed = std::make_unique<Hashed>();
    std::array<std::uint16_t, kParts + 1> at{};
    ForRows(begin, end, [&](std::int64_t row, const Key& key, bool there) {
      const std::uint64_t hash = there ? hash_.Of(key) : 0;
      const auto part = static_cast<std::uint16_t>(there ? hash_.Spread(hash) >> (64 - kPartBits) : kParts);
      hashed->hashes[row - begin] = hash;
      hashed->parts[row - begin] = part;
      ++at[part];
      if (!there) LowerTo(&first_missing_, row);
    });
    std::uint16_t start = 0;
    for (std::int64_t part = 0; part <= kParts; ++part) {
      starts[part] = start;
      start = static_cast<std::uint16_t>(start + std::exchange(at[part], start));
    }
    for (std::int64_t i = 0; i < end - begin; ++i) {
      const std::int64_t to = begin + at[hashed->parts[i]]++;
      hashes[to] = hashed->hashes[i];
      places[to] = static_cast<std::uint16_t>(i);
    }
  }

  // How the order of two keys shows without a look at either: by 8 bytes or 2 characters, after the first `skip` bytes.
  std::uint64_t Prefix(const Key& key, std::size_t skip) const {
    if constexpr (kText) {
      std::array<char, 8> bytes{};
      if (key.size() > skip) std::memcpy(bytes.data(), key.data() + skip, std::min(key.size() - skip, bytes.size()));
      if (!rows_.ucs4()) return __builtin_bswap64(std::bit_cast<std::uint64_t>(bytes));  // the first byte decides first
      const auto characters = std::bit_cast<std::array<std::uint32_t, 2>>(bytes);
      return std::uint64_t{characters[0]} << 32 | characters[1];
    } else {
      return key;
    }
  }

  bool Less(const Key& a, const Key& b) const {
    if constexpr (kText) {
      if (!rows_.ucs4()) return a < b;
      const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
      if (in_a == a.end() || in_b == b.end()) return a.size() < b.size();
      const std::size_t at = static_cast<std::size_t>(in_a - a.begin()) / 4 * 4;
      std::uint32_t of_a, of_b;
      std::memcpy(&of_a, a.data() + at, sizeof(of_a));
      std::memcpy(&of_b, b.data() + at, sizeof(of_b));
      return of_a < of_b;
    } else {
      return a < b;
    }
  }

  // The bytes that all keys of text begin with.
  std::size_t CommonBytes() const {
    if constexpr (!kText) {
      return 0;
    } else {
      if (groups_.empty()) return 0;
      std::string_view common = groups_[0].key;
      for (const Group& group : groups_) {
        const auto [end, other] = std::mismatch(common.begin(), common.end(), group.key.begin(), group.key.end());
        common = common.substr(0, static_cast<std::size_t>(end - common.begin()));
      }
      return rows_.ucs4() ? common.size() / 4 * 4 : common.size();
    }
  }

  // Fills in the codes of `groups_` and of missing keys, and the first rows in the order of the codes.
  void Rank() {
    const std::int64_t count = std::ssize(groups_);
    std::vector<std::pair<std::uint64_t, std::int64_t>> order(groups_.size());  // what decides first, and the group
    const std::size_t skip = how_.sort ? CommonBytes() : 0;
    ForEach((count + kBlockRows - 1) / kBlockRows, [&](std::int64_t /*worker*/, std::int64_t block) {
      for (std::int64_t g = block * kBlockRows; g < std::min((block + 1) * kBlockRows, count); ++g) {
        order[g] = {how_.sort ? Prefix(groups_[g].key, skip) : static_cast<std::uint64_t>(groups_[g].first), g};
      }
    });
    const auto before = [&](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first < b.first;
      return kText && Less(groups_[a.second].key, groups_[b.second].key);
    };
    if (!std::is_sorted(order.begin(), order.end(), before)) SortOnThreads(&order, before);
    first_.clear();
    first_.reserve(groups_.size() + 1);
    for (const auto& [_, g] : order) first_.push_back(groups_[g].first);
    Code missing = -1;
    const std::int64_t row = first_missing_;
    if (how_.group_missing && row < rows_.count()) {
      const auto at = how_.sort ? first_.end() : std::lower_bound(first_.begin(), first_.end(), row);
      missing = static_cast<Code>(at - first_.begin());
      first_.insert(at, row);
    }
    code_of_missing_ = missing;
    code_of_.resize(groups_.size());
    for (std::int64_t place = 0; place < count; ++place) {
      const bool after = !how_.sort && missing >= 0 && place >= missing;
      code_of_[order[place].second] = static_cast<Code>(place + (after ? 1 : 0));
    }
  }

  static constexpr int kPartBits = 8;
  static constexpr std::int64_t kParts = 1 << kPartBits;

  const KeyRows<Key>& rows_;
  const KeyEncoding how_;
  const KeyHash hash_;
  const std::int64_t blocks_;
  std::unique_ptr<Code[]> codes_;
  std::atomic<std::int64_t> first_missing_;  // row
  std::vector<Group> groups_;                // one for each distinct key
  std::vector<Code> code_of_;                // of each
  Code code_of_missing_ = -1;
  std::vector<std::int64_t> first_;  // the first row of each code
};

}  // namespace

template <class Key, class Code>
KeyCodes EncodeRows(const KeyRows<Key>& rows, const KeyEncoding& how) {
  return KeyEncoder<Key, Code>(rows, how).Run();
}

template KeyCodes EncodeRows<std::uint64_t, std::int32_t>(const KeyRows<std::uint64_t>&, const KeyEncoding&);
template KeyCodes EncodeRows<std::uint64_t, std::int64_t>(const KeyRows<std::uint64_t>&, const KeyEncoding&);
template KeyCodes EncodeRows<std::string_view, std::int32_t>(const KeyRows<std::string_view>&, const KeyEncoding&);
template KeyCodes EncodeRows<std::string_view, std::int64_t>(const KeyRows<std::string_view>&, const KeyEncoding&);

}  // namespace reduced::client
