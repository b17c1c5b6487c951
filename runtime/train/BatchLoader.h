// Training batches, read ahead by a thread: while step k computes, the batch of
// step k + 1 is read.
#pragma once
#include "runtime/data/TrainingData.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace tessera {

/// Which batches: `rows` sequences each, from sample `first` of the stream that
/// `seed` shuffles. Of each batch only the sequences `own` (numbers below
/// `rows`) are read; the others keep the token 0.
struct BatchOrder {
  int64_t seed = 0;
  uint64_t first = 0, rows = 0;
  std::vector<uint64_t> own;
  DocumentInputs documents = {};
};

class BatchLoader {
public:
  /// Allocates two batches, and reads nothing before next(). `data` must
  /// outlive this and is read by the thread only.
  BatchLoader(const TrainingData &data, BatchOrder order);
  BatchLoader(const BatchLoader &) = delete;
  BatchLoader &operator=(const BatchLoader &) = delete;
  ~BatchLoader();

  /// The next batch, valid until the call after this one. After an error all
  /// calls return it.
  StatusOr<TokenBatch> next();

private:
  void readAhead();
  Status read(TokenBuffers &batch, uint64_t number) const;

  const TrainingData &data;
  const BatchOrder order;
  TokenBuffers batches[2];

  std::mutex mutex;
  std::condition_variable changed;
  uint64_t wanted = 0; ///< batches that may be read
  uint64_t ready = 0;  ///< batches that were
  uint64_t given = 0;  ///< batches that next() returned
  Status failure = Status::success();
  bool isOver = false;
  std::thread reader; ///< last: started when all else is there
};

} // namespace tessera
