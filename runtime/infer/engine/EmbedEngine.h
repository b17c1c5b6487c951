// A queue of sequences before a model of vectors, on a thread of its own, which
// any thread may ask. Requests share batches: with the text that has waited
// longest run others of its length, whoever sent them.
#pragma once
#include "runtime/infer/EmbeddingModel.h"
#include "runtime/infer/engine/Engine.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>

namespace tessera {

struct EmbedResult {
  FinishReason reason = FinishReason::stop; ///< stop: all is well
  std::string message;                      ///< of an error
  int64_t tokens = 0;                       ///< of all sequences
  std::vector<float> vectors;               ///< [sequences, width]
};

struct EmbedRequest {
  std::vector<std::vector<int32_t>> sequences; ///< as checkText wants them
  std::optional<EngineClock::time_point> deadline;
  /// Called once, on the engine's thread, which it must not block.
  std::function<void(EmbedResult)> done;
};

class EmbedEngine : public EngineThread {
public:
  /// Starts the thread. The model must outlive the engine and is its own. Of
  /// the options those of requests and tokens matter.
  EmbedEngine(EmbeddingModel &model, const EngineOptions &options);
  /// Cancels what is left.
  ~EmbedEngine() override;

  Submission submit(EmbedRequest request);
  /// The request's `done` hears of it unless it has been called meanwhile.
  void cancel(uint64_t id);
  /// Of what counts pages and generated tokens there is nothing.
  EngineMetrics metrics() const;
  int64_t unfinished() const override;
  /// A batch.
  std::optional<EngineClock::time_point> lastComputed() const override;
  const EmbeddingShape &shape() const { return model.shape(); }

private:
  struct Work;
  /// A text of a request, by its place in the order of arrival.
  struct Item {
    uint64_t order;
    std::shared_ptr<Work> work;
    std::size_t index;
  };
  void loop();
  /// The next batch; empty: there is nothing more. Requests whose time is over
  /// are finished meanwhile.
  std::vector<Item> nextBatch();
  std::vector<Item> takeBatch(EngineClock::time_point now);
  void run(const std::vector<Item> &batch);
  /// Takes the request out, so that `done` can be called without the lock.
  void close(const std::shared_ptr<Work> &work, FinishReason reason,
             const std::string &message = {});
  void closeAll(FinishReason reason, const std::string &message = {});
  void callDone(std::unique_lock<std::mutex> &lock);

  EmbeddingModel &model;
  const EngineOptions options;

  // The mutex guards what follows.
  std::map<uint64_t, std::shared_ptr<Work>> open; ///< unfinished, by id
  std::map<int64_t, std::deque<Item>> queues;     ///< by shape().lengths
  std::vector<std::shared_ptr<Work>> closed;      ///< `done` is to be called
  int64_t heldTokens = 0;                         ///< of the open
  uint64_t nextId = 1, nextOrder = 1;
  std::optional<EngineClock::time_point> computed;
  EngineMetrics counters;
};

} // namespace tessera
