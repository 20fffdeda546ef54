// The module reduced._core: the client library and the local engine as the package's Python sees them.
// reduced/_core.pyi has the types.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "client/python/src/arrow.h"
#include "client/python/src/call.h"
#include "client/python/src/cuda.h"
#include "client/python/src/elements.h"
#include "client/python/src/fork.h"
#include "client/python/src/held.h"
#include "client/python/src/keys.h"
#include "client/python/src/memory.h"
#include "client/python/src/reducer.h"
#include "kernels/system/gather.h"
#include "reduced/client.h"
#include "reduced/merge.h"
#include "reduced/ops.h"

namespace nb = nanobind;
namespace reduced::python {
namespace {

using client::Reply;
using Shape = std::vector<std::int64_t>;

nb::bytes Bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

// Those that have a value.
nb::list Results(const std::vector<client::Result>& results) {
  nb::list list;
  for (const client::Result& result : results) {
    if (result.value.ok()) list.append(nb::make_tuple(result.op, result.value->dtype, result.value->value));
  }
  return list;
}

const absl::Status& ErrorOf(const client::Result& result) { return result.value.status(); }
const absl::Status& ErrorOf(const client::ResultArray& result) { return result.error; }

// Of each op its name, the number of its status and the message; nothing, if all are OK.
template <class Result>
nb::list Statuses(const std::vector<Result>& results) {
  nb::list statuses;
  if (std::all_of(results.begin(), results.end(), [](const Result& result) { return ErrorOf(result).ok(); })) {
    return statuses;
  }
  for (const Result& result : results) {
    const absl::Status& error = ErrorOf(result);
    statuses.append(nb::make_tuple(result.op, error.raw_code(), Bytes(std::string(error.message()))));
  }
  return statuses;
}

// The stages that happened, in their order, in microseconds.
nb::dict Stages(const Reply& reply) {
  nb::dict stages;
  for (const client::TimingStage& stage : client::kTimingStages) {
    if (const std::optional<double>& us = reply.timing.*stage.us; us.has_value()) stages[stage.name] = *us;
  }
  return stages;
}

client::ReduceOptions Options(std::string engine, std::string device, std::string pipeline, std::string precision,
                              std::string nan, std::string overflow, std::int64_t ddof, int block_size, std::string via,
                              std::optional<double> timeout, bool state, bool results) {
  client::ReduceOptions options{.engine = std::move(engine),
                                .device = std::move(device),
                                .pipeline = std::move(pipeline),
                                .precision = std::move(precision),
                                .nan_policy = std::move(nan),
                                .overflow_policy = std::move(overflow),
                                .ddof = ddof,
                                .block_size = block_size,
                                .via = std::move(via),
                                .return_state = state,
                                .results = results};
  if (timeout.has_value()) options.timeout = absl::Seconds(*timeout);
  return options;
}

// An array that Python gives: a Resident, a SharedCuda, a Strided, or an object with a buffer, of that dtype and shape.
class HeldArray {
 public:
  HeldArray(nb::handle array, const std::string& dtype, Shape shape) {
    if (nb::isinstance<SharedCuda>(array)) {
      operand_ = nb::cast<SharedCuda&>(array).array();
    } else if (nb::isinstance<Resident>(array)) {
      operand_ = client::RemoteArray::Resident(nb::cast<Resident&>(array).info().id);
    } else if (nb::isinstance<Strided>(array)) {
      operand_ = nb::cast<Strided&>(array).Of(dtype);
    } else {
      elements_.emplace(array, dtype, std::move(shape));
      if (const absl::Status status = elements_->Check(); !status.ok()) Raise(status);
      operand_ = elements_->view();
    }
  }
  ~HeldArray() {
    if (!std::holds_alternative<CudaArray>(operand_)) return;
    const Released released;  // as SharedCuda's
    operand_ = HostArray(client::ArrayView());
  }
  HeldArray(const HeldArray&) = delete;
  HeldArray& operator=(const HeldArray&) = delete;

  const Operand& operand() const { return operand_; }

 private:
  std::optional<Elements> elements_;
  Operand operand_ = HostArray(client::ArrayView());
};

// Runs `call` with the options, which then have the interrupts of Run.
template <class Call>
auto RunWith(const client::ReduceOptions& options, const Interrupt* interrupt, Call call) {
  return Run(interrupt, [&](const client::Interrupted& interrupted) {
    client::ReduceOptions own = options;
    own.interrupted = interrupted;
    return call(own);
  });
}

Reply Reduce(Reducer& reducer, nb::handle array, const std::string& dtype, Shape shape, const Ops& ops,
             const client::ReduceOptions& options, const Interrupt* interrupt) {
  const HeldArray held(array, dtype, std::move(shape));
  return RunWith(options, interrupt,
                 [&](const client::ReduceOptions& own) { return reducer.Reduce(held.operand(), ops, own); });
}

// A partition. It holds the arrays beside the one that is reduced, whose arguments are those of HeldArray.
class HeldPartition {
 public:
  HeldPartition(std::vector<int> axis, bool keepdims, const std::string& empty)
      : partition_({.options = {.axis = std::move(axis), .keepdims = keepdims, .empty = empty}}) {}
  HeldPartition(const HeldPartition&) = delete;
  HeldPartition& operator=(const HeldPartition&) = delete;

  void Segments(nb::handle array, const std::string& dtype, Shape shape, bool lengths) {
    partition_.options.segments = {.lengths = lengths};
    Beside(array, dtype, std::move(shape),
           [](auto& options) -> client::SideArray& { return options.segments->offsets; });
  }
  void Keys(nb::handle array, const std::string& dtype, Shape shape, std::int64_t groups, bool drop_outside) {
    partition_.options.keys = {.groups = groups, .drop_outside = drop_outside};
    Beside(array, dtype, std::move(shape), [](auto& options) -> client::SideArray& { return options.keys->keys; });
  }
  void Where(nb::handle array, const std::string& dtype, Shape shape) {
    partition_.options.where.emplace();
    Beside(array, dtype, std::move(shape), [](auto& options) -> client::SideArray& { return options.where->mask; });
  }
  // `weights`: or y.
  void Other(nb::handle array, const std::string& dtype, Shape shape, bool weights) {
    (weights ? partition_.options.weights : partition_.options.y).emplace();
    weights
        ? Beside(array, dtype, std::move(shape), [](auto& options) -> client::SideArray& { return *options.weights; })
        : Beside(array, dtype, std::move(shape), [](auto& options) -> client::SideArray& { return *options.y; });
  }
  void Keep(const std::string& owner, double ttl) {
    partition_.options.keep = client::KeepOptions{.owner = owner, .ttl = absl::Seconds(ttl)};
  }
  const Partition& get() const { return partition_; }

 private:
  using Place = decltype(Partition::CudaSide::place);
  void Beside(nb::handle array, const std::string& dtype, Shape shape, Place place) {
    const Operand& operand = held_.emplace_back(array, dtype, std::move(shape)).operand();
    if (const auto* const cuda = std::get_if<CudaArray>(&operand)) {
      partition_.cuda.push_back({*cuda, place});
    } else if (const auto* const remote = std::get_if<client::RemoteArray>(&operand)) {
      place(partition_.options) = *remote;
    } else {
      place(partition_.options) = static_cast<const client::ArrayView&>(std::get<HostArray>(operand));
    }
  }

  std::deque<HeldArray> held_;
  Partition partition_;
};

using ByteArray = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

// An array of its own, which has the bytes.
ByteArray ArrayOf(std::string bytes) {
  auto* const data = new std::string(std::move(bytes));
  const nb::capsule owner(data, [](void* held) noexcept { delete static_cast<std::string*>(held); });
  const std::size_t size[] = {data->size()};
  return ByteArray(data->data(), 1, size, owner);
}

// Arrays of results without errors, which this takes; the keys last, as those of an op without a name. Those that the
// server of `reducer` has kept for `owner` become Residents.
nb::list Arrays(std::vector<client::ResultArray>& results, client::ResultArray& keys, Reducer* reducer = nullptr,
                const std::string& owner = {}) {
  nb::list list;
  if (!keys.array.dtype.empty()) results.push_back(std::move(keys));
  for (client::ResultArray& result : results) {
    if (!result.error.ok()) continue;
    nb::object elements;
    if (reducer != nullptr && !result.id.empty()) {
      elements = nb::cast(std::make_unique<Resident>(
          Run(nullptr, [&](const client::Interrupted&) { return reducer->Own(result, owner); })));
    } else {
      elements = nb::cast(ArrayOf(std::move(result.array.data)));
    }
    list.append(nb::make_tuple(result.op, result.array.dtype, nb::tuple(nb::cast(result.array.shape)), elements));
  }
  return list;
}

// Of a partition: the arrays of results; what else there is of a Reply.
class ArrayReply {
 public:
  // `keep`: that of the request.
  ArrayReply(Reducer& reducer, const std::optional<client::KeepOptions>& keep, client::ArrayReply reply)
      : reducer_(reducer), owner_(keep.has_value() ? keep->owner : ""), reply_(std::move(reply)) {
    rest_ = {.via = reply_.via,
             .count = reply_.count,
             .execution = reply_.execution,
             .timing = reply_.timing,
             .state = std::move(reply_.state),
             .attempts = reply_.attempts};
  }

  const Reply& rest() const { return rest_; }
  nb::list statuses() const { return Statuses(reply_.results); }
  // Gives the results away. To be called last, while the reducer lives.
  nb::list Take() { return Arrays(reply_.results, reply_.keys, &reducer_, owner_); }

 private:
  Reducer& reducer_;
  const std::string owner_;
  client::ArrayReply reply_;
  Reply rest_;
};

ArrayReply ReduceArray(Reducer& reducer, nb::handle array, const std::string& dtype, Shape shape, const Ops& ops,
                       const client::ReduceOptions& options, const HeldPartition& partition,
                       const Interrupt* interrupt) {
  const HeldArray held(array, dtype, std::move(shape));
  client::ArrayReply reply = RunWith(options, interrupt, [&](const client::ReduceOptions& own) {
    return reducer.ReduceArray(held.operand(), ops, partition.get(), own);
  });
  return ArrayReply(reducer, partition.get().options.keep, std::move(reply));
}

// Of many arrays, each a tuple of the arguments of HeldArray.
nb::list ReduceMany(Reducer& reducer, const nb::list& arrays, const Ops& ops, const client::ReduceOptions& options,
                    const Interrupt* interrupt) {
  std::deque<HeldArray> held;
  std::vector<Operand> operands;
  for (const nb::handle each : arrays) {
    const auto [array, dtype, shape] = nb::cast<std::tuple<nb::object, std::string, Shape>>(each);
    operands.push_back(held.emplace_back(array, dtype, shape).operand());
  }
  std::vector<Reply> replies = RunWith(
      options, interrupt, [&](const client::ReduceOptions& own) { return reducer.ReduceMany(operands, ops, own); });
  nb::list list;
  for (Reply& reply : replies) list.append(nb::cast(std::move(reply)));
  return list;
}

// What a DLPack object says of memory of a GPU: address, the kind of its elements and their bits, shape, and strides in
// elements.
nb::tuple CudaLayout(const nb::ndarray<nb::ro, nb::device::cuda>& array) {
  nb::list shape;
  nb::list strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i));
  }
  return nb::make_tuple(reinterpret_cast<std::uint64_t>(array.data()), static_cast<int>(array.dtype().code),
                        static_cast<int>(array.dtype().bits), nb::tuple(shape), nb::tuple(strides));
}

std::unique_ptr<Remote> Connect(const std::string& server, double timeout, int connections, int max_attempts,
                                const std::string& tls_ca, const std::string& tls_cert, const std::string& tls_key,
                                const std::string& tls_server_name, const std::string& token_file) {
  auto remote = std::make_unique<Remote>(client::ClientOptions{.server = server,
                                                               .timeout = absl::Seconds(timeout),
                                                               .connections = connections,
                                                               .max_attempts = max_attempts,
                                                               .tls_ca = tls_ca,
                                                               .tls_cert = tls_cert,
                                                               .tls_key = tls_key,
                                                               .tls_server_name = tls_server_name,
                                                               .token_file = token_file});
  Run(nullptr, [&](const client::Interrupted&) { return remote->Use(); });
  return remote;
}

std::unique_ptr<Resident> Put(Remote& remote, nb::handle buffer, const std::string& dtype, Shape shape,
                              const std::string& device, const std::string& owner, double ttl,
                              std::optional<double> timeout, const Interrupt* interrupt) {
  const Elements elements(buffer, dtype, std::move(shape));
  if (const absl::Status status = elements.Check(); !status.ok()) Raise(status);
  client::PutOptions options{.device = device, .owner = owner, .ttl = absl::Seconds(ttl)};
  if (timeout.has_value()) options.timeout = absl::Seconds(*timeout);
  return std::make_unique<Resident>(Run(interrupt, [&](const client::Interrupted& interrupted) {
    options.interrupted = interrupted;
    return remote.With([&](client::Client& client) { return client.Put(elements.view(), options); });
  }));
}

// The dtype, shape and bytes of a resident array.
nb::tuple Get(Remote& remote, const std::string& id, double timeout) {
  client::HostArray array = Run(nullptr, [&](const client::Interrupted&) {
    return remote.With([&](client::Client& client) { return client.GetArray(id, absl::Seconds(timeout)); });
  });
  return nb::make_tuple(array.dtype, nb::tuple(nb::cast(array.shape)), ArrayOf(std::move(array.data)));
}

std::unique_ptr<RemoteSession> OpenSession(Remote& remote, const std::string& via) {
  return Run(nullptr, [&](const client::Interrupted&) { return remote.OpenSession(via); });
}

nb::dict Info(Remote& remote) {
  const client::ServerInfo info = Run(nullptr, [&](const client::Interrupted&) {
    return remote.With([](client::Client& client) { return client.GetServerInfo(); });
  });
  nb::list devices;
  for (const client::DeviceInfo& device : info.devices) {
    nb::dict fields;
    fields["name"] = device.name;
    fields["engine"] = device.engine;
    fields["model"] = device.model;
    fields["memory_bytes"] = device.memory_bytes;
    fields["array_bytes"] = device.array_bytes;
    devices.append(fields);
  }
  nb::dict usage;
  usage["streams"] = info.usage.streams;
  usage["sessions"] = info.usage.sessions;
  usage["arrays"] = info.usage.arrays;
  usage["regions"] = info.usage.regions;
  usage["rings"] = info.usage.rings;
  nb::dict all;
  all["version"] = info.version;
  all["uptime"] = absl::ToDoubleSeconds(info.uptime);
  all["devices"] = devices;
  all["no_cuda_reason"] = info.no_cuda_reason;
  all["max_elements"] = info.max_elements;
  all["usage"] = usage;
  return all;
}

std::vector<std::string> States(const std::vector<nb::bytes>& parts) {
  std::vector<std::string> states;
  states.reserve(parts.size());
  for (const nb::bytes& part : parts) states.emplace_back(part.c_str(), part.size());
  return states;
}

// Results, how many elements there are, if `state` the bytes of the merged state, and if `results` the statuses of
// the ops. `rows`, `as_f64`: as of MergeStatesOptions.
nb::tuple Merge(const std::vector<nb::bytes>& parts, bool results, bool state, std::int64_t rows, bool as_f64) {
  const client::MergeReply reply = Run(nullptr, [&, states = States(parts)](const client::Interrupted&) {
    return client::MergeStates(
        states, {.return_state = state, .results = results, .names = {}, .rows = rows, .as_f64 = as_f64});
  });
  return nb::make_tuple(Results(reply.results), reply.count, Bytes(reply.state), Statuses(reply.results));
}

// The same of arrays of results.
nb::tuple MergeArrays(const std::vector<nb::bytes>& parts, bool results, bool state, std::int64_t rows) {
  client::MergeArraysReply reply = Run(nullptr, [&, states = States(parts)](const client::Interrupted&) {
    return client::MergeArrayStates(states, {.return_state = state, .results = results, .names = {}, .rows = rows});
  });
  const nb::list statuses = Statuses(reply.results);
  return nb::make_tuple(Arrays(reply.results, reply.keys), reply.count, Bytes(reply.state), statuses);
}

// The state of all that is known, and the ops of the next round. `answer`: of the round before; no bytes: there was
// none.
nb::tuple NextQuantileRound(const nb::bytes& whole, const nb::bytes& answer) {
  const std::vector<std::string> states = States({whole, answer});
  const client::QuantileRound next =
      Run(nullptr, [&](const client::Interrupted&) { return client::NextQuantileRound(states[0], states[1]); });
  return nb::make_tuple(Bytes(next.state), nb::cast(next.ops));
}

// The least and the largest that the quantiles of a state can be.
nb::tuple Brackets(const nb::bytes& state) {
  client::QuantileBrackets brackets =
      Run(nullptr, [states = States({state})](const client::Interrupted&) { return client::BracketsOf(states); });
  for (const std::vector<client::ResultArray>* const bounds : {&brackets.low, &brackets.high}) {
    for (const client::ResultArray& bound : *bounds) {
      if (!bound.error.ok()) Raise(bound.error);
    }
  }
  client::ResultArray none;  // no keys
  const nb::list low = Arrays(brackets.low, none), high = Arrays(brackets.high, none);
  return nb::make_tuple(low, high);
}

bool OfArrays(const nb::bytes& state) { return client::IsArrayState({state.c_str(), state.size()}); }

// Bytes of shared memory as an array, which keeps them.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> EmptyMemory(std::int64_t bytes) {
  std::shared_ptr<Memory> memory = Run(nullptr, [&](const client::Interrupted&) { return Allocate(bytes); });
  void* const data = memory->data();
  const nb::capsule owner(new std::shared_ptr<Memory>(std::move(memory)), [](void* held) noexcept {
    const Released released;  // ends its regions, which takes calls to the servers
    delete static_cast<std::shared_ptr<Memory>*>(held);
  });
  const std::size_t shape[] = {static_cast<std::size_t>(bytes)};
  return {data, 1, shape, owner};
}

// Copies elements to `to`, an array of as many bytes, in C order.
void GatherElements(std::uint64_t address, std::int64_t width, std::vector<std::int64_t> shape,
                    std::vector<std::int64_t> strides, bool swaps,
                    nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> to) {
  auto bytes = static_cast<std::int64_t>(to.size());
  for (const std::int64_t size : shape) bytes = size == 0 ? 0 : bytes / size;
  if (shape.size() != strides.size() || bytes != (to.size() == 0 ? 0 : width)) {
    throw nb::value_error("to: got another size; allowed: the bytes of the elements");
  }
  const nb::gil_scoped_release release;
  Gather({reinterpret_cast<const std::byte*>(address), width, std::move(shape), std::move(strides), swaps},
         reinterpret_cast<std::byte*>(to.data()));
}

// The bits of an array of elements of 8 or 16 bits that a DLPack object has and NumPy has no dtype for, with its
// strides.
nb::object Bits(const nb::ndarray<nb::ro, nb::device::cpu>& array) {
  if (array.itemsize() > 2) throw nb::value_error("dtype: got another size; allowed: 1 and 2 bytes");
  std::vector<std::size_t> shape;
  std::vector<std::int64_t> strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.push_back(array.shape(i));
    strides.push_back(array.stride(i));
  }
  if (array.itemsize() == 1) {
    return nb::cast(nb::ndarray<nb::numpy, const std::uint8_t>(array.data(), array.ndim(), shape.data(),
                                                               nb::find(array), strides.data()));
  }
  return nb::cast(nb::ndarray<nb::numpy, const std::uint16_t>(array.data(), array.ndim(), shape.data(), nb::find(array),
                                                              strides.data()));
}

// Bytes of a buffer of an Arrow array as a read-only array, which keeps them. Of no bytes there may be no buffer.
nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>> ArrowBytes(nb::handle node, std::int64_t buffer,
                                                                   std::int64_t first, std::int64_t bytes) {
  const std::uint64_t address = nb::cast<const ArrowNode&>(node).Buffer(buffer);
  if (first < 0 || bytes < 0 || (address == 0 && bytes > 0)) {
    throw nb::value_error("array: got an Arrow array without the memory of its elements");
  }
  const std::size_t shape[] = {static_cast<std::size_t>(bytes)};
  return {reinterpret_cast<const std::uint8_t*>(address) + (address == 0 ? 0 : first), 1, shape, node};
}

}  // namespace

NB_MODULE(_core, module) {
  ForkGeneration();  // counts from here on
  module.attr("ops") = nb::cast(client::OpNames());
  nb::list distribution;
  for (const std::string& op : client::OpNames()) {
    if (client::IsOfDistribution(op)) distribution.append(op);
  }
  module.attr("distribution") = distribution;
  nb::dict operands;
  for (const std::string& op : client::OpNames()) {
    const std::string operand(client::OtherOperandName(op));
    if (!operand.empty()) operands[op.c_str()] = operand;
  }
  module.attr("operands") = operands;
  module.attr("figures") = nb::cast(
      std::vector<std::string>(std::begin(client::ops::kComparisonFigures), std::end(client::ops::kComparisonFigures)));
  module.def(
      "split_ops", [](const std::string& list) { return client::SplitOps(list); }, nb::arg("list"));
  module.def(
      "canonical_op", [](const std::string& op) { return client::CanonicalOp(op); }, nb::arg("op"));
  module.attr("dtypes") = nb::cast(client::DTypeNames());
  module.attr("version") = REDUCED_VERSION;

  nb::class_<Interrupt>(module, "Interrupt").def(nb::init<>()).def("set", [](Interrupt& self) { self.set = true; });

  const nb::class_<client::ReduceOptions> options(module, "Options");
  module.def("options", &Options, nb::kw_only(), nb::arg("engine"), nb::arg("device"), nb::arg("pipeline"),
             nb::arg("precision"), nb::arg("nan"), nb::arg("overflow"), nb::arg("ddof"), nb::arg("block_size"),
             nb::arg("via"), nb::arg("timeout").none(), nb::arg("state"), nb::arg("results"));

  nb::class_<Reply>(module, "Reply")
      .def_ro("via", &Reply::via)
      .def_ro("size", &Reply::count)
      .def_ro("attempts", &Reply::attempts)
      .def_prop_ro("results", [](const Reply& self) { return Results(self.results); })
      .def_prop_ro("statuses", [](const Reply& self) { return Statuses(self.results); })
      .def_prop_ro("state", [](const Reply& self) { return Bytes(self.state); })
      .def_prop_ro("execution",
                   [](const Reply& self) {
                     const client::Execution& ran = self.execution;
                     return nb::make_tuple(ran.engine, ran.device, ran.pipeline, ran.precision, ran.reason);
                   })
      .def_prop_ro("stages", &Stages)
      .def("take", [](Reply& self) {
        client::ResultArray none;  // no keys
        return Arrays(self.arrays, none);
      });

  nb::class_<ArrayReply>(module, "ArrayReply")
      .def_prop_ro("rest", &ArrayReply::rest)
      .def_prop_ro("statuses", &ArrayReply::statuses)
      .def("take", &ArrayReply::Take);

  nb::class_<Resident>(module, "Resident")
      .def_prop_ro("id", [](const Resident& self) { return self.info().id; })
      .def_prop_ro("device", [](const Resident& self) { return self.info().device; })
      .def_prop_ro("shards",
                   [](const Resident& self) {
                     nb::list shards;
                     for (const client::ArrayShard& shard : self.info().shards) {
                       shards.append(nb::make_tuple(shard.device, shard.first_index, shard.indexes, shard.count));
                     }
                     return nb::tuple(shards);
                   })
      .def("close", &Resident::Close);

  nb::class_<HeldPartition>(module, "Partition")
      .def(nb::init<std::vector<int>, bool, std::string>(), nb::arg("axis"), nb::arg("keepdims"), nb::arg("empty"))
      .def("segments", &HeldPartition::Segments, nb::arg("array"), nb::arg("dtype"), nb::arg("shape"),
           nb::arg("lengths"))
      .def("keys", &HeldPartition::Keys, nb::arg("array"), nb::arg("dtype"), nb::arg("shape"), nb::arg("groups"),
           nb::arg("drop_outside"))
      .def("where", &HeldPartition::Where, nb::arg("array"), nb::arg("dtype"), nb::arg("shape"))
      .def("other", &HeldPartition::Other, nb::arg("array"), nb::arg("dtype"), nb::arg("shape"), nb::arg("weights"))
      .def("keep", &HeldPartition::Keep, nb::arg("owner"), nb::arg("ttl"));

  nb::class_<Strided>(module, "Strided")
      .def(
          "__init__",
          [](Strided* self, nb::object array, std::uint64_t address, std::int64_t width, Shape shape, Shape strides,
             bool swaps) {
            if (shape.size() != strides.size() || shape.size() > kMostStrides) {
              throw nb::value_error("strides: got another number of them; allowed: one for each of 64 dimensions");
            }
            new (self)
                Strided(std::move(array), address,
                        {.width = width, .shape = std::move(shape), .strides = std::move(strides), .swaps = swaps});
          },
          nb::arg("array"), nb::arg("address"), nb::arg("width"), nb::arg("shape"), nb::arg("strides"),
          nb::arg("swaps"))
      .def_prop_ro("nbytes", &Strided::nbytes);
  nb::class_<SharedCuda>(module, "SharedCuda")
      .def(nb::init<std::uint64_t, std::string, Shape, std::uint64_t, std::pair<std::uint64_t, std::uint64_t>,
                    std::optional<Shape>>(),
           nb::arg("address"), nb::arg("dtype"), nb::arg("shape"), nb::arg("stream"), nb::arg("memory"),
           nb::arg("strides").none())
      .def_prop_ro("allocation", [](const SharedCuda& self) { return self.array().allocation(); });

  nb::class_<Reducer>(module, "Reducer")
      .def("reduce", &Reduce, nb::arg("array"), nb::arg("dtype"), nb::arg("shape"), nb::arg("ops"), nb::arg("options"),
           nb::arg("interrupt").none())
      .def("reduce_array", &ReduceArray, nb::arg("array"), nb::arg("dtype"), nb::arg("shape"), nb::arg("ops"),
           nb::arg("options"), nb::arg("partition"), nb::arg("interrupt").none())
      .def("reduce_many", &ReduceMany, nb::arg("arrays"), nb::arg("ops"), nb::arg("options"),
           nb::arg("interrupt").none())
      .def("close", &Reducer::Close, nb::call_guard<Released>());
  nb::class_<Remote, Reducer>(module, "Remote")
      .def("put", &Put, nb::arg("buffer"), nb::arg("dtype"), nb::arg("shape"), nb::kw_only(), nb::arg("device"),
           nb::arg("owner"), nb::arg("ttl"), nb::arg("timeout").none(), nb::arg("interrupt").none())
      .def("get", &Get, nb::arg("id"), nb::arg("timeout"))
      .def("session", &OpenSession, nb::arg("via"))
      .def("info", &Info)
      .def_prop_ro("default_owner", [](Remote& self) {
        return Run(nullptr, [&](const client::Interrupted&) {
          return self.With([](client::Client& client) { return absl::StatusOr<std::string>(client.DefaultOwner()); });
        });
      });
  nb::class_<RemoteSession, Reducer>(module, "RemoteSession")
      .def_prop_ro("via", &RemoteSession::via)
      .def_prop_ro("why_not_ring", &RemoteSession::why_not_ring);
  nb::class_<Local, Reducer>(module, "Local").def(nb::init<>());
  nb::class_<ArrowNode>(module, "ArrowNode")
      .def_prop_ro("length", [](const ArrowNode& self) { return self.array().length; })
      .def_prop_ro("offset", [](const ArrowNode& self) { return self.array().offset; })
      .def_prop_ro("null_count", [](const ArrowNode& self) { return self.array().null_count; })
      .def_prop_ro("children", &ArrowNode::Children)
      .def("has", [](const ArrowNode& self, std::int64_t buffer) { return self.Buffer(buffer) != 0; })
      .def(
          "bytes",
          [](nb::handle self, std::int64_t buffer, std::int64_t first, std::int64_t bytes) {
            return ArrowBytes(self, buffer, first, bytes);
          },
          nb::arg("buffer"), nb::arg("first"), nb::arg("bytes"));
  module.def("arrow_array", &TakeArrowArray, nb::arg("schema"), nb::arg("array"));
  module.def("arrow_stream", &TakeArrowStream, nb::arg("stream"));
  module.def("connect", &Connect, nb::arg("server"), nb::kw_only(), nb::arg("timeout"), nb::arg("connections"),
             nb::arg("max_attempts"), nb::arg("tls_ca"), nb::arg("tls_cert"), nb::arg("tls_key"),
             nb::arg("tls_server_name"), nb::arg("token_file"));

  module.def("merge", &Merge, nb::arg("states"), nb::kw_only(), nb::arg("results"), nb::arg("state"), nb::arg("rows"),
             nb::arg("as_f64") = false);
  module.def("merge_arrays", &MergeArrays, nb::arg("states"), nb::kw_only(), nb::arg("results"), nb::arg("state"),
             nb::arg("rows"));
  module.def("next_quantile_round", &NextQuantileRound, nb::arg("whole"), nb::arg("answer"));
  module.def("brackets", &Brackets, nb::arg("state"));
  module.def("of_arrays", &OfArrays, nb::arg("state"));
  module.def("encode_keys", &EncodeKeys, nb::arg("columns"), nb::arg("sort"), nb::arg("missing"));
  module.def("empty", &EmptyMemory, nb::arg("bytes"));
  module.def(
      "is_shared", [](std::uint64_t address) { return Find(reinterpret_cast<const void*>(address), 1) != nullptr; },
      nb::arg("address"));
  module.def("gather", &GatherElements, nb::arg("address"), nb::arg("width"), nb::arg("shape"), nb::arg("strides"),
             nb::arg("swaps"), nb::arg("to"));
  module.def("bits", &Bits, nb::arg("array"));
  module.def("cuda_layout", &CudaLayout, nb::arg("array"));
}

}  // namespace reduced::python
