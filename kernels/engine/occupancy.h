#ifndef REDUCED_KERNELS_ENGINE_OCCUPANCY_H_
#define REDUCED_KERNELS_ENGINE_OCCUPANCY_H_

namespace reduced {

// How many blocks of a kernel fit on a multiprocessor of its device, and what they take.
struct Occupancy {
  int block_size = 0;    // threads
  int registers = 0;     // of a thread
  int shared_bytes = 0;  // of a block
  int blocks_per_multiprocessor = 0;
  int max_threads_per_multiprocessor = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_OCCUPANCY_H_
