#include "runtime/train/BatchLoader.h"

#include <utility>

namespace tessera {

BatchLoader::BatchLoader(const TrainingData &data, BatchOrder order)
    : data(data), order(std::move(order)) {
  for (TokenBuffers &batch : batches)
    batch = TokenBuffers(this->order.rows * uint64_t(data.sequence()),
                         this->order.documents);
}

BatchLoader::~BatchLoader() {
  {
    std::lock_guard lock(mutex);
    isOver = true;
  }
  changed.notify_all();
  if (reader.joinable())
    reader.join();
}

Status BatchLoader::read(TokenBuffers &batch, uint64_t number) const {
  return data.batch(order.seed, order.first + number * order.rows, order.own,
                    batch.out());
}

void BatchLoader::readAhead() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return isOver || ready < wanted; });
    if (isOver)
      return;
    const uint64_t number = ready;
    lock.unlock();
    Status status = read(batches[number % 2], number);
    lock.lock();
    if (!status.ok()) {
      failure = status;
      isOver = true;
    } else {
      ++ready;
    }
    changed.notify_all();
  }
}

StatusOr<TokenBatch> BatchLoader::next() {
  std::unique_lock lock(mutex);
  // The batch that was given before is free now.
  wanted = given + 2;
  if (!reader.joinable())
    reader = std::thread([this] { readAhead(); });
  changed.notify_all();
  changed.wait(lock, [&] { return isOver || ready > given; });
  if (ready > given)
    return batches[given++ % 2].view();
  return failure;
}

} // namespace tessera
