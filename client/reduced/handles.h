// What a Client hands out: calls in flight, and arrays that a server stores.
#ifndef REDUCED_HANDLES_H_
#define REDUCED_HANDLES_H_

#include <memory>
#include <string>

#include "reduced/types.h"

namespace reduced::client {

struct Connection;   // internal
class SessionState;  // internal
class RingSession;   // internal

// A request in flight. Copies refer to the same request; destroying them has no effect on it.
class REDUCED_EXPORT Call {
 public:
  // Ends the request early: its callback gets CANCELLED, unless it is already running or has run. Thread-safe. It may
  // be called any number of times.
  void Cancel();

  struct State;  // internal

 private:
  friend class Client;
  friend class RingSession;
  friend class SessionState;
  std::shared_ptr<State> state_;
};

// The handle of an array that a server stores. It owns the array. Movable, not copyable.
class REDUCED_EXPORT ResidentArray {
 public:
  ResidentArray(ResidentArray&& other) noexcept;
  ResidentArray& operator=(ResidentArray&& other) noexcept;
  // Deletes the array and waits for that, at most 5 seconds or ClientOptions.timeout. If that fails, the array expires.
  ~ResidentArray();

  const ArrayInfo& info() const { return info_; }  // as of Client::Put or Client::Own
  const std::string& id() const { return info_.id; }
  const std::string& device() const { return info_.device; }
  // NOLINTNEXTLINE(google-explicit-constructor): a resident array is a remote array
  operator RemoteArray() const { return RemoteArray::Resident(info_.id); }

  // Gives up the ownership and returns the id. The array stays on the server until it expires or somebody deletes it.
  const std::string& Release();

 private:
  friend class Client;
  ResidentArray(std::shared_ptr<const Connection> connection, ArrayInfo info);
  void Delete();

  std::shared_ptr<const Connection> connection_;  // null: this owns no array
  ArrayInfo info_;
};

}  // namespace reduced::client

#endif  // REDUCED_HANDLES_H_
