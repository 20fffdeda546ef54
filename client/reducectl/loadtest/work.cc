#include "client/reducectl/loadtest/work.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr int kDrawnSizes = 64;           // arrays that represent a distribution
constexpr int kAlikeArrays = 4;           // of one size, so that the result of another array is noticed
constexpr std::int64_t kLarge = 1 << 20;  // bytes; from this size on there is one array of each size
constexpr std::int64_t kStagger = 64;     // bytes between the starts of two arrays in one buffer
constexpr std::size_t kDeck = 4096;
constexpr std::int64_t kMostRingBytes = std::int64_t{64} << 20;  // the default of --max_ring_bytes

std::vector<std::int64_t> DrawSizes(const Sizes& sizes, std::int64_t width, std::uint64_t* random) {
  std::vector<std::int64_t> drawn;
  if (sizes.high > 0) {
    const double low = std::log(static_cast<double>(sizes.low)), high = std::log(static_cast<double>(sizes.high));
    for (int i = 0; i < kDrawnSizes; ++i) {
      const auto bytes = static_cast<std::int64_t>(std::exp(std::lerp(low, high, NextUniform(random))));
      drawn.push_back(std::max(width, bytes / width * width));
    }
    return drawn;
  }
  for (const std::int64_t bytes : sizes.list) {
    for (int i = 0; i < (bytes < kLarge ? kAlikeArrays : 1); ++i) drawn.push_back(bytes);
  }
  return drawn;
}

bool Any(const std::vector<Kind>& kinds, absl::string_view session) {
  return std::any_of(kinds.begin(), kinds.end(), [&](const Kind& kind) { return ViaOf(kind.via).session == session; });
}

// How the elements of the item reach the server: ViaRow.elements.
bool Goes(const Item& item, absl::string_view elements) { return item.via->elements == elements; }

std::string NameOf(const Item& item) {
  return absl::StrCat(absl::StrJoin(item.ops, ","), " of ", item.view.shape.front(), " ", item.view.dtype, " via ",
                      item.via->name);
}

absl::Status WithPlace(const absl::Status& status, absl::string_view place) {
  return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
}

// Resident arrays lie where they are to be reduced: the engine that was asked for might not have their memory else.
PutOptions PutOptionsOf(const Item& item) { return {.device = item.options.engine == "cpu" ? "cpu" : ""}; }

}  // namespace

absl::StatusOr<std::unique_ptr<Work>> Work::Prepare(const std::vector<Kind>& kinds, const WorkOptions& options) {
  std::unique_ptr<Work> work(new Work(options));
  std::uint64_t random = options.seed;
  std::vector<std::size_t> first;  // the first item of each kind
  absl::Status status;
  for (const Kind& kind : kinds) {
    first.push_back(work->items_.size());
    status.Update(work->AddItems(kind, &random));
    if (!status.ok()) return status;
  }
  status.Update(work->Connect(kinds));
  if (status.ok()) status = work->MakeArrays();
  if (!status.ok()) return status;
  work->Shuffle(kinds, first, random);
  return work;
}

absl::Status Work::Connect(const std::vector<Kind>& kinds) {
  for (int i = 0; i < options_.connections; ++i) {
    ClientOptions options = options_.client;
    options.max_attempts = 1;  // a refusal is a measurement, too
    ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Create(std::move(options)));
    LoadConnection& connection = connections_.emplace_back();
    connection.client = std::move(client);
    for (const char* const via : {"session", "ring"}) {
      if (!Any(kinds, via)) continue;
      // Room for as many of the largest arrays as a small concurrency needs; beyond that requests wait for each other.
      SessionOptions session_options{.via = via};
      session_options.ring_bytes = std::clamp(16 * max_bytes_, session_options.ring_bytes, kMostRingBytes);
      ASSIGN_OR_RETURN(std::unique_ptr<Session> session, connection.client->OpenSession(session_options));
      connection.sessions.emplace(via, std::move(session));
    }
  }
  return absl::OkStatus();
}

absl::Status Work::AddItems(const Kind& kind, std::uint64_t* random) {
  ASSIGN_OR_RETURN(const std::int64_t width, DTypeBytes(kind.dtype));
  const bool has_prod = std::find(kind.ops.begin(), kind.ops.end(), "prod") != kind.ops.end();
  for (const std::int64_t bytes : DrawSizes(kind.sizes, width, random)) {
    if (bytes % width != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("size: got ", bytes, " bytes for ", kind.dtype, "; allowed: multiples of ", width));
    }
    Item& item = items_.emplace_back();
    item.view = {nullptr, kind.dtype, {bytes / width}};
    item.ops = kind.ops;
    item.options.engine = kind.engine;
    item.options.pipeline = kind.pipeline;
    item.options.precision = kind.precision;
    if (has_prod) item.options.overflow_policy = "wrap";  // the product of random integers doesn't fit
    item.options.via = kind.via == "stream" || kind.via == "inline" ? kind.via : "auto";
    item.via = &ViaOf(kind.via);
    item.bytes = bytes;
    max_bytes_ = std::max(max_bytes_, bytes);
  }
  return absl::OkStatus();
}

// Creates the elements and the expected results of all items. Shares or puts the arrays that aren't sent.
absl::Status Work::MakeArrays() {
  std::map<std::string, std::int64_t> needed, used;  // by dtype, bytes
  const auto place = [](std::map<std::string, std::int64_t>* at, const Item& item) {
    return (*at)[item.view.dtype] += kStagger;
  };
  for (const Item& item : items_) {
    const std::int64_t end = place(&used, item) + item.bytes;
    needed[item.view.dtype] = std::max(needed[item.view.dtype], end);
  }
  std::map<std::string, std::size_t> region_of;  // by dtype, index
  for (const auto& [dtype, bytes] : needed) {
    absl::StatusOr<SharedBuffer> buffer = SharedBuffer::Allocate(bytes);
    absl::Status status = buffer.status();
    if (status.ok()) status = FillRandom(dtype, options_.seed, buffer->data(), bytes);
    if (!status.ok()) return status;
    const auto goes_by = [&, of = dtype](absl::string_view elements) {
      return std::any_of(items_.begin(), items_.end(),
                         [&](const Item& item) { return item.view.dtype == of && Goes(item, elements); });
    };
    if (goes_by("device_region")) {
      ASSIGN_OR_RETURN(device_elements_[dtype],
                       DeviceBuffer::Share(*connections_.front().client, buffer->data(), bytes));
    }
    if (goes_by("region")) {
      ASSIGN_OR_RETURN(Region region, connections_.front().client->Share(*buffer));
      region_of[dtype] = regions_.size();
      regions_.push_back(std::move(region));
    }
    elements_.emplace(dtype, *std::move(buffer));
  }
  used.clear();
  for (Item& item : items_) {
    const std::string& dtype = item.view.dtype;
    const std::int64_t offset = place(&used, item);
    item.view.data = static_cast<const char*>(elements_.at(dtype).data()) + offset;
    if (options_.verify) {
      ASSIGN_OR_RETURN(item.expected, Expected(item.ops, dtype, item.view.data, item.view.shape.front()));
    }
    if (Goes(item, "region")) item.remote = regions_[region_of[dtype]].Array(dtype, item.view.shape, offset);
    if (Goes(item, "device_region")) item.remote = device_elements_[dtype]->Array(dtype, item.view.shape, offset);
    if (Goes(item, "resident") && !options_.include_fill) {
      ASSIGN_OR_RETURN(ResidentArray array, connections_.front().client->Put(item.view, PutOptionsOf(item)));
      item.remote = array;
      kept_.push_back(std::move(array));
    }
  }
  return absl::OkStatus();
}

void Work::Shuffle(const std::vector<Kind>& kinds, const std::vector<std::size_t>& first, std::uint64_t random) {
  double total = 0;
  for (const Kind& kind : kinds) total += kind.weight;
  for (std::size_t i = 0; i < kDeck; ++i) {
    std::size_t kind = 0;
    for (double left = NextUniform(&random) * total; kind + 1 < kinds.size(); ++kind) {
      left -= kinds[kind].weight;
      if (left < 0) break;
    }
    const std::size_t end = kind + 1 < first.size() ? first[kind + 1] : items_.size();
    deck_.push_back(static_cast<std::uint32_t>(first[kind] + NextRandom(&random) % (end - first[kind])));
  }
}

absl::Status Work::Probe() {
  const std::size_t calls = std::max(items_.size(), connections_.size());
  for (std::size_t i = 0; i < calls; ++i) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Caller> caller, Caller::Make(*this, i));
    const std::size_t index = i % items_.size();
    caller->Fill(index);
    const absl::StatusOr<Reply> reply = caller->Reduce(index);
    const Item& item = items_[index];
    if (!reply.ok()) return WithPlace(reply.status(), NameOf(item));
    const std::string wrong = options_.verify ? Mismatch(item.ops, item.expected, *reply) : "";
    if (!wrong.empty()) return WithPlace(absl::DataLossError(wrong), NameOf(item));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Caller>> Caller::Make(Work& work, std::size_t slot) {
  std::unique_ptr<Caller> caller(new Caller(work, slot));
  if (!work.options().include_fill) return caller;
  ASSIGN_OR_RETURN(SharedBuffer buffer, SharedBuffer::Allocate(work.max_bytes()));
  std::memset(buffer.data(), 1, static_cast<std::size_t>(buffer.bytes()));  // so that page faults aren't measured
  const std::vector<Item>& items = work.items();
  if (std::any_of(items.begin(), items.end(), [](const Item& item) { return Goes(item, "region"); })) {
    ASSIGN_OR_RETURN(caller->region_, caller->connection_.client->Share(buffer));
  }
  if (std::any_of(items.begin(), items.end(), [](const Item& item) { return Goes(item, "device_region"); })) {
    ASSIGN_OR_RETURN(caller->device_buffer_,
                     DeviceBuffer::Share(*caller->connection_.client, buffer.data(), buffer.bytes()));
  }
  caller->buffer_ = std::move(buffer);
  for (const Item& item : items) {
    caller->views_.push_back(item.view);
    caller->views_.back().data = caller->buffer_->data();
    caller->remotes_.push_back(Goes(item, "region") ? caller->region_->Array(item.view.dtype, item.view.shape)
                               : Goes(item, "device_region")
                                   ? caller->device_buffer_->Array(item.view.dtype, item.view.shape, 0)
                                   : RemoteArray::Resident(""));
  }
  return caller;
}

void Caller::Fill(std::size_t index) {
  if (!buffer_.has_value()) return;
  const Item& item = work_.items()[index];
  if (Goes(item, "device_region")) {
    filled_ = device_buffer_->Write(item.view.data, item.bytes);
    return;
  }
  std::memcpy(buffer_->data(), item.view.data, static_cast<std::size_t>(item.bytes));
}

// Null: it goes without one.
Session* Caller::SessionOf(const Item& item) const {
  const auto found = connection_.sessions.find(item.via->session);
  return found == connection_.sessions.end() ? nullptr : found->second.get();
}

template <class Array>
absl::StatusOr<Reply> Caller::Send(const Item& item, const Array& array) {
  if (Session* const session = SessionOf(item)) return session->Reduce(array, item.ops, item.options);
  return connection_.client->Reduce(array, item.ops, item.options);
}

template <class Array>
void Caller::SendAsync(const Item& item, const Array& array, Client::Done done) {
  if (Session* const session = SessionOf(item)) {
    session->ReduceAsync(array, item.ops, item.options, std::move(done));
  } else {
    connection_.client->ReduceAsync(array, item.ops, item.options, std::move(done));
  }
}

absl::StatusOr<Reply> Caller::Reduce(std::size_t index) {
  const Item& item = work_.items()[index];
  const ArrayView& view = buffer_.has_value() ? views_[index] : item.view;
  if (Goes(item, "resident") && buffer_.has_value()) {
    ASSIGN_OR_RETURN(const ResidentArray array, connection_.client->Put(view, PutOptionsOf(item)));
    return Send(item, RemoteArray(array));
  }
  if (!filled_.ok()) return filled_;
  if (item.remote.has_value()) return Send(item, buffer_.has_value() ? remotes_[index] : *item.remote);
  return Send(item, view);
}

void Caller::ReduceAsync(std::size_t index, Client::Done done) {
  const Item& item = work_.items()[index];
  const ArrayView& view = buffer_.has_value() ? views_[index] : item.view;
  if (!filled_.ok()) return std::move(done)(filled_);
  if (item.remote.has_value()) {
    SendAsync(item, buffer_.has_value() ? remotes_[index] : *item.remote, std::move(done));
  } else {
    SendAsync(item, view, std::move(done));
  }
}

}  // namespace reduced::client
