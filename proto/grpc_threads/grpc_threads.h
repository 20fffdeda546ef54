// How many threads gRPC runs callbacks on.
//
// gRPC's callback API polls with a thread for every two processors of the machine, 2 to 16, which take turns: one waits
// for events of the process's only epoll set, takes one, wakes the next thread to wait in its place, and handles the
// event. While all threads are busy the next turn needs no wake-up; with many threads each event does, and a wake-up of
// an idle processor takes longer than an event. So a program that carries many small calls is fastest with few threads:
// on 64 processors 6 carry 1.4 to 2.4 times the calls of 16.
//
// gRPC has no option for that. It asks gpr_cpu_num_cores(), which a program that links this library defines itself; the
// dynamic linker prefers the program's definition to that of libgpr. From gRPC 1.66 on, which polls by its event
// engine, the library defines nothing.
#ifndef REDUCED_PROTO_GRPC_THREADS_GRPC_THREADS_H_
#define REDUCED_PROTO_GRPC_THREADS_GRPC_THREADS_H_

namespace reduced {

// The processors that gRPC is told of where the process may use `usable`: all of them, and 12 at most.
int GrpcProcessors(int usable);

}  // namespace reduced

#endif  // REDUCED_PROTO_GRPC_THREADS_GRPC_THREADS_H_
