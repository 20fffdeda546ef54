#include "server/sources/regions.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/status_macros.h"
#include "server/config/listener.h"
#include "server/security/random_id.h"
#include "server/sources/descriptors.h"
#include "server/sources/region.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

constexpr char kTooMuch[] = "packet: got more; allowed: at most 4096 bytes and one descriptor";

// Pieces of GPUs' memory that the regions of one user have: 1.2 TiB in those of PyTorch.
constexpr int kMaxPieces = 65'536;

// How many of what all users may have one user may have.
int OneUsersPart(int all) { return std::max(all / 2, 1); }

// Closes the descriptor, if there is one.
void Close(int* file) {
  if (*file >= 0) close(*file);
  *file = -1;
}

}  // namespace

struct Regions::Connection {
  int socket = -1;
  std::int64_t number = 0;
  ucred peer{};
  int regions = 0;
  int pieces = 0;  // of its regions, and those of `pending`
  absl::Time last_packet{};
  SharedDeviceMemory pending{};  // pieces that others will follow
};

Regions::Regions(const Engines& engines, const RegionOptions& options) : engines_(engines), options_(options) {}

Regions::~Regions() { Stop(); }

absl::Status Regions::Start(const std::string& path) {
  ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(absl::StrCat("unix:", path)));
  absl::Status status = CheckUnixPath(address, SOCK_SEQPACKET);
  if (!status.ok()) return status;
  unlink(path.c_str());
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un at = UnixAddress(path);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 ||
      listen(listener_, 64) != 0) {
    status =
        absl::FailedPreconditionError(absl::StrCat("cannot listen for regions at ", path, ": ", std::strerror(errno)));
    Close(&listener_);
    return status;
  }
  path_ = path;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  max_all_regions_ = static_cast<int>(std::min<rlim_t>(files.rlim_cur / 2, std::numeric_limits<int>::max()));
  max_all_connections_ = std::clamp(max_all_regions_ / 2, 1, options_.max_connections);
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
  thread_ = std::thread([this] { Serve(); });
  return absl::OkStatus();
}

void Regions::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_, 1);
    thread_.join();
  }
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
  Close(&listener_);
  Close(&stop_);
}

int Regions::count() const {
  const absl::MutexLock lock(&mutex_);
  return static_cast<int>(shared_.size());
}

// Null: there is none.
std::shared_ptr<const Region> Regions::FindRegion(const std::string& token) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = shared_.find(token);
  return found == shared_.end() ? nullptr : found->second.region;
}

absl::StatusOr<HeldArray> Regions::Find(const v1::RegionPart& part, const ByteSpan& span) const {
  const std::shared_ptr<const Region> region = FindRegion(part.token());
  if (region == nullptr)
    return absl::NotFoundError(
        "region.token: got one of no shared region; allowed: the token of a region that is shared now");
  if (part.offset() < 0 || part.offset() > region->bytes() || span.end > region->bytes() - part.offset()) {
    return absl::OutOfRangeError(absl::StrFormat(
        "region%s: got an array of %d bytes from byte %d on; allowed: within the %d bytes of the region",
        part.strides().empty() ? "" : ".strides", span.end, part.offset(), region->bytes()));
  }
  if (span.begin < -part.offset()) {
    return absl::OutOfRangeError(
        absl::StrFormat("region.strides: got an array from byte %d on; allowed: within the %d bytes of the region",
                        part.offset() + span.begin, region->bytes()));
  }
  return HeldArray{region->At(part.offset()), region};
}

absl::StatusOr<WritablePart> Regions::FindWritable(const v1::RegionPart& part, std::int64_t bytes) const {
  const std::shared_ptr<const Region> region = FindRegion(part.token());
  if (region == nullptr) {
    return absl::NotFoundError(
        "write_to.token: got one of no shared region; allowed: the token of a region that is shared now");
  }
  if (region->writable() == nullptr) {
    return absl::FailedPreconditionError(
        "write_to.token: got that of a region that is not writable; allowed: host memory that was shared with "
        "shareMemory.writable");
  }
  if (!part.strides().empty() || part.big_endian()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "write_to.%s: got it; allowed: none, since results lie next to each other in little-endian order",
        part.strides().empty() ? "big_endian" : "strides"));
  }
  if (part.offset() < 0 || part.offset() % kResultAlignment != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("write_to.offset: got %d; allowed: multiples of %d from 0 on",
                                                      part.offset(), kResultAlignment));
  }
  if (part.offset() > region->bytes() || bytes > region->bytes() - part.offset()) {
    return absl::OutOfRangeError(
        absl::StrFormat("write_to: got results of %d bytes from byte %d on; allowed: within the %d bytes of the region",
                        bytes, part.offset(), region->bytes()));
  }
  return WritablePart{.data = region->writable() + part.offset(),
                      .offset = part.offset(),
                      .bytes = bytes,
                      .file = region->file(),
                      .held = region};
}

absl::StatusOr<std::string> Regions::OfferRing(std::shared_ptr<const RingMemory> ring) {
  if (path_.empty()) {
    return absl::FailedPreconditionError("open_ring: the server has no region socket (--region_socket) for its memory");
  }
  std::string token = RandomId();
  const absl::MutexLock lock(&mutex_);
  offers_.emplace(token, std::move(ring));
  return token;
}

void Regions::WithdrawRing(const std::string& token) { TakeOffer(token); }

// Null: there is none.
std::shared_ptr<const RingMemory> Regions::TakeOffer(const std::string& token) {
  const absl::MutexLock lock(&mutex_);
  const auto found = offers_.find(token);
  if (found == offers_.end()) return nullptr;
  std::shared_ptr<const RingMemory> ring = std::move(found->second);
  offers_.erase(found);
  return ring;
}

// The thread, until Stop.
void Regions::Serve() {
  constexpr int kPauseMs = 100;
  closer_.emplace();
  bool pause = false;  // the process has no descriptor left: who connects waits a moment
  for (;;) {
    absl::Duration patience = EndIdle();
    std::vector<pollfd> polled = {{stop_, POLLIN, 0}};
    const bool full = static_cast<int>(connections_.size()) >= max_all_connections_;
    polled.push_back({full || pause ? -1 : listener_, POLLIN, 0});  // those beyond wait to be accepted
    for (const auto& [socket, connection] : connections_) {
      polled.push_back({HasToWait(connection) ? -1 : socket, POLLIN, 0});
    }
    const std::size_t connections_end = polled.size();
    closer_->AddTo(&polled);
    for (const auto& [uid, user] : users_) {
      const absl::Duration wait = user.next_packet - absl::Now();
      if (wait > absl::ZeroDuration()) patience = std::min(patience, wait);
    }
    if (std::exchange(pause, false)) patience = std::min(patience, absl::Milliseconds(kPauseMs));
    if (closer_->Waits()) patience = std::min(patience, absl::Milliseconds(Closer::kPollMs));
    const timespec timeout = absl::ToTimespec(patience);
    const timespec* const until = patience == absl::InfiniteDuration() ? nullptr : &timeout;
    if (FAILPOINT_ERRNO("regions/poll", EINTR, ppoll(polled.data(), polled.size(), until, nullptr)) < 0) continue;
    if (polled[0].revents != 0) break;
    closer_->Poll();
    if (polled[1].revents != 0) pause = !Accept();
    for (std::size_t i = 2; i < connections_end; ++i) {
      if (polled[i].revents == 0) continue;
      const auto connection = connections_.find(polled[i].fd);
      if (connection == connections_.end() || HasToWait(connection->second)) continue;
      if (!Answer(connection->second)) End(connection);
    }
  }
  shutdown(listener_, SHUT_RDWR);
  while (Accept()) {  // those that wait for it
  }
  while (!connections_.empty()) End(connections_.begin());
  closer_.reset();
}

// Whether the packets of this connection have to wait.
bool Regions::HasToWait(const Connection& connection) const {
  return closer_->IsBusy(connection.peer.uid) || users_.at(connection.peer.uid).next_packet > absl::Now();
}

// False: there is nobody, or no descriptor, and who connects has to wait.
bool Regions::Accept() {
  const int socket =
      FAILPOINT_ERRNO("regions/accept", EMFILE, accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket < 0) return errno == EINTR || errno == ECONNABORTED;
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes));  // for Receive
  const auto connection = connections_.emplace(socket, Connection{.socket = socket}).first;
  Connection& its = connection->second;
  its.number = ++last_connection_;
  its.last_packet = absl::Now();
  socklen_t size = sizeof(its.peer);
  getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &its.peer, &size);
  User& user = users_[its.peer.uid];
  if (++user.connections > OneUsersPart(max_all_connections_)) {
    spdlog::warn("region connections of uid {}: got one more; allowed: {}, half of those of all users", its.peer.uid,
                 OneUsersPart(max_all_connections_));
    refused_connections_.fetch_add(1, std::memory_order_relaxed);
    End(connection);
  }
  return true;
}

// Ends the connections that share nothing and have been silent for too long. Returns the time until the next one is.
absl::Duration Regions::EndIdle() {
  const absl::Time now = absl::Now();
  absl::Duration next = absl::InfiniteDuration();
  for (auto each = connections_.begin(); each != connections_.end();) {
    const auto connection = each++;
    if (connection->second.regions > 0 || HasToWait(connection->second)) continue;
    const absl::Duration left = connection->second.last_packet + options_.idle_timeout - now;
    if (left <= absl::ZeroDuration()) {
      End(connection);
    } else {
      next = std::min(next, left);
    }
  }
  return next;
}

// Closes a connection, and ends its regions.
void Regions::End(std::map<int, Connection>::iterator connection) {
  const Connection& its = connection->second;
  Forget(its);
  const auto user = users_.find(its.peer.uid);
  user->second.regions -= its.regions;
  user->second.pieces -= its.pieces;
  if (--user->second.connections == 0) users_.erase(user);
  // Descriptors in packets that nobody has received are closed with the socket, and some closes take their time.
  shutdown(its.socket, SHUT_RDWR);
  if (HasPackets(its.socket)) {
    closer_->Close(its.peer.uid, {its.socket});
  } else {
    close(its.socket);
  }
  connections_.erase(connection);
}

// Answers one packet: true, or false if the connection has ended or doesn't take its answers.
bool Regions::Answer(Connection& connection) {
  absl::StatusOr<Packet> packet = Receive(connection.socket);
  if (!packet.ok()) return absl::IsUnavailable(packet.status());  // nothing there after all
  if (packet->end) return false;
  connection.last_packet = absl::Now();
  v1::RegionReply reply;
  std::shared_ptr<const RingMemory> ring;  // whose descriptors go with the reply
  absl::StatusOr<v1::RegionReply> handled = absl::InvalidArgumentError(kTooMuch);
  if (packet->files_lost) {
    handled = absl::ResourceExhaustedError("the server has no file descriptor left");
  } else if (!packet->cut) {
    handled = Handle(connection, packet->text, &packet->files, &ring);
  }
  // Looking at large memory, or pinning it, takes time. If there are other users, they have as much.
  const absl::Time now = absl::Now();
  if (users_.size() > 1) users_.at(connection.peer.uid).next_packet = now + (now - connection.last_packet);
  std::vector<int> others;
  for (int& file : packet->files) {
    if (file >= 0 && !IsMemory(file)) others.push_back(std::exchange(file, -1));
    Close(&file);
  }
  closer_->Close(connection.peer.uid, std::move(others), packet->files_lost ? connection.socket : -1);
  if (handled.ok()) {
    reply = *std::move(handled);
  } else {
    reply.set_code(handled.status().raw_code());
    reply.set_message(std::string(handled.status().message()));
  }
  if (spdlog::should_log(spdlog::level::debug)) {
    spdlog::debug("region pid={} uid={} status={} bytes={}{}", connection.peer.pid, connection.peer.uid,
                  absl::StatusCodeToString(static_cast<absl::StatusCode>(reply.code())), reply.bytes(),
                  reply.message().empty() ? "" : ": " + reply.message());
  }
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(reply, &text).ok()) return false;
  const std::vector<int> files = ring == nullptr ? std::vector<int>() : std::vector{ring->file(), ring->doorbell()};
  return FAILPOINT_ERRNO("regions/send", EAGAIN, Send(connection.socket, text, files)) ==
         static_cast<ssize_t>(text.size());
}

// `files`: the descriptors that came with the packet, those that the region keeps or are closed set to -1. `ring`: is
// set to one that was asked for.
absl::StatusOr<v1::RegionReply> Regions::Handle(Connection& connection, const std::string& packet,
                                                std::vector<int>* files, std::shared_ptr<const RingMemory>* ring) {
  v1::RegionRequest request;
  if (!google::protobuf::util::JsonStringToMessage(packet, &request).ok()) {
    return absl::InvalidArgumentError("packet: got something else; allowed: a RegionRequest in JSON");
  }
  const auto got = static_cast<int>(files->size());
  if (const int pieces = request.share_device().pieces_size(); pieces > 0) {
    if (got != pieces) {
      return absl::InvalidArgumentError(
          absl::StrFormat("shareDevice.pieces: got %d with %d descriptors; allowed: one descriptor each", pieces, got));
    }
  } else if (got > 1) {
    return absl::InvalidArgumentError(kTooMuch);
  } else if (request.has_share_memory() != (got == 1)) {
    return absl::InvalidArgumentError(got == 0 ? "shareMemory: got no descriptor; allowed: one"
                                               : "descriptor: got one without shareMemory; allowed: none");
  }
  v1::RegionReply reply;
  if (request.has_release()) {
    RETURN_IF_ERROR(Release(connection, request.release().token()));
    return reply;
  }
  if (request.has_take_ring()) {
    *ring = TakeOffer(request.take_ring().token());
    if (*ring == nullptr) {
      return absl::NotFoundError(
          "takeRing.token: got one of no ring that waits for it; allowed: the token of an open session's ring, once");
    }
    reply.set_bytes(static_cast<std::int64_t>((*ring)->mapping().geometry.bytes()));
    return reply;
  }
  if (!request.has_share_memory() && !request.has_share_device()) {
    return absl::InvalidArgumentError("request: got none; allowed: shareMemory, shareDevice, release, takeRing");
  }
  User& user = users_.at(connection.peer.uid);
  const struct {
    int got, allowed;
    const char* of;
  } limits[] = {
      {connection.regions, options_.max_regions, "a connection"},
      {user.regions, OneUsersPart(max_all_regions_), "a user, a quarter of the server's file descriptors"},
      {count(), max_all_regions_, "all users, half of the server's file descriptors"},
  };
  for (const auto& limit : limits) {
    if (limit.got < limit.allowed) continue;
    return absl::ResourceExhaustedError(
        absl::StrFormat("regions: got one more; allowed: %d for %s", limit.allowed, limit.of));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const Region> region,
                   request.has_share_memory()
                       ? ShareMemory(request.share_memory(), connection.peer.uid, &files->front())
                       : ShareDevice(connection, request.share_device(), files));
  if (region == nullptr) return reply;
  reply.set_token(RandomId());
  reply.set_bytes(region->bytes());
  ++connection.regions;
  ++user.regions;
  const absl::MutexLock lock(&mutex_);
  shared_[reply.token()] = {connection.number, std::move(region)};
  return reply;
}

absl::StatusOr<std::shared_ptr<const Region>> Regions::ShareMemory(const v1::ShareMemory& request, uid_t user,
                                                                   int* file) const {
  if (request.writable() && user != 0 && user != geteuid() && !options_.allow_writable_regions) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "writable: got memory of uid %d; allowed: of uid %d, the server's, and of root, or of all users "
        "if the server runs with --allow_writable_regions",
        user, geteuid()));
  }
  ASSIGN_OR_RETURN(const Memory memory, Examine(*file, options_.allow_disk_files));
  const char* const why_not = WhyNotMapped(memory);
  if (request.pin() && why_not != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("pin: got ", why_not,
                     "; allowed: memory that is sealed against shrinking (F_SEAL_SHRINK) and against writing by others "
                     "than present mappings (F_SEAL_FUTURE_WRITE), not empty, without holes"));
  }
  const char* const why_not_writable = WhyNotWritable(memory);
  if (request.writable() && why_not_writable != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "writable: got ", why_not_writable,
        "; allowed: memory that is open for reading and writing, not sealed against writing (F_SEAL_WRITE, "
        "F_SEAL_FUTURE_WRITE), not empty, without holes and huge pages"));
  }
  const auto region = std::make_shared<Region>(std::exchange(*file, -1), memory.bytes);
  absl::Status status;
  if (why_not == nullptr) status = region->Map(memory);
  if (status.ok() && request.writable()) status = region->MapForWriting();
  if (status.ok() && request.pin()) status = region->Pin(engines_);
  if (!status.ok()) return status;
  return region;
}

// Null: more pieces follow.
absl::StatusOr<std::shared_ptr<const Region>> Regions::ShareDevice(Connection& connection,
                                                                   const v1::ShareDevice& request,
                                                                   std::vector<int>* files) {
  SharedDeviceMemory memory;
  if (request.pieces_size() > 0) {
    ASSIGN_OR_RETURN(memory, ImportPieces(connection, request, files));
  } else if (request.pieces_before() != 0 || request.more()) {
    return absl::InvalidArgumentError("shareDevice.pieces: got none; allowed: one at least with piecesBefore or more");
  }
  const auto pieces = static_cast<int>(memory.pieces.size());
  std::shared_ptr<const Region> region;
  if (request.more()) {
    connection.pending = std::move(memory);
  } else {
    memory.handle = request.handle();
    memory.device_uuid = request.device_uuid();
    memory.offset = request.offset();
    memory.bytes = request.bytes();
    memory.event = request.event();
    ASSIGN_OR_RETURN(HeldArray array, engines_.Open(memory));
    region = std::make_shared<const Region>(std::move(array), memory.bytes, pieces);
  }
  CountPieces(connection, pieces);
  return region;
}

// The pieces of the requests before, if it goes on with them, and of this one, whose descriptors are closed.
absl::StatusOr<SharedDeviceMemory> Regions::ImportPieces(Connection& connection, const v1::ShareDevice& request,
                                                         std::vector<int>* files) {
  SharedDeviceMemory memory = std::exchange(connection.pending, {});
  CountPieces(connection, -static_cast<int>(memory.pieces.size()));
  if (request.pieces_before() == 0) memory = {.device_uuid = request.device_uuid()};
  const auto before = static_cast<int>(memory.pieces.size());
  if (request.pieces_before() != before) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shareDevice.piecesBefore: got %d; allowed: 0, or the %d of the requests before",
                        request.pieces_before(), before));
  }
  if (request.device_uuid() != memory.device_uuid) {
    return absl::InvalidArgumentError("shareDevice.deviceUuid: got another than with the pieces before; allowed: that");
  }
  if (request.pieces_size() > kMaxPieces - before - users_.at(connection.peer.uid).pieces) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("shareDevice.pieces: got more; allowed: %d for all regions of a user", kMaxPieces));
  }
  for (int i = 0; i < request.pieces_size(); ++i) {
    int& file = (*files)[static_cast<std::size_t>(i)];
    absl::Status status = CheckDevice(file);
    if (status.ok()) {
      absl::StatusOr<std::shared_ptr<const void>> piece = engines_.Import(request.device_uuid(), file);
      status = piece.status();
      if (status.ok()) memory.pieces.push_back({*std::move(piece), request.pieces(i)});
    }
    if (absl::IsInvalidArgument(status)) {
      return absl::InvalidArgumentError(absl::StrFormat("shareDevice.pieces[%d]: %s", before + i, status.message()));
    }
    if (!status.ok()) return status;
    Close(&file);  // CUDA's own, whose close waits for nobody
  }
  return memory;
}

void Regions::CountPieces(Connection& connection, int more) {
  connection.pieces += more;
  users_.at(connection.peer.uid).pieces += more;
}

absl::Status Regions::Release(Connection& connection, const std::string& token) {
  std::shared_ptr<const Region> last;  // destroyed after the lock is released
  const absl::MutexLock lock(&mutex_);
  const auto found = shared_.find(token);
  if (found == shared_.end())
    return absl::NotFoundError(
        "release.token: got one of no shared region; allowed: the token of a region that is shared now");
  if (found->second.connection != connection.number) {
    return absl::PermissionDeniedError(
        "release.token: got that of another connection; allowed: a region that this connection shared");
  }
  last = std::move(found->second.region);
  shared_.erase(found);
  --connection.regions;
  --users_.at(connection.peer.uid).regions;
  CountPieces(connection, -last->pieces());
  return absl::OkStatus();
}

// The regions of a connection that has ended.
void Regions::Forget(const Connection& connection) {
  std::vector<std::shared_ptr<const Region>> last;  // go outside the lock
  const absl::MutexLock lock(&mutex_);
  for (auto each = shared_.begin(); each != shared_.end();) {
    if (each->second.connection == connection.number) {
      last.push_back(std::move(each->second.region));
      each = shared_.erase(each);
    } else {
      ++each;
    }
  }
}

}  // namespace reduced::server
