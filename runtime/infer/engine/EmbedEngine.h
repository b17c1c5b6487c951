// A queue of sequences for an embedding model, on a thread of its own. All
// methods are thread-safe. Requests share batches: the sequence that has waited
// longest runs with others of its length, from any request.
#pragma once
#include "runtime/infer/EmbeddingModel.h"
#include "runtime/infer/engine/Engine.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>

namespace tessera {

struct EmbedResult {
  FinishReason reason = FinishReason::stop; ///< stop: success
  std::string message;                      ///< of an error
  int64_t tokens = 0;                       ///< of all sequences
  std::vector<float> vectors;               ///< [sequences, width]
};

struct EmbedRequest {
  std::vector<std::vector<int32_t>> sequences; ///< see checkText
  std::optional<EngineClock::time_point> deadline;
  /// Called once, on the engine's thread, which it must not block.
  std::function<void(EmbedResult)> done;
  /// Where the second text of each begins; empty: each is one text.
  std::vector<int64_t> secondBegins = {};
};

class EmbedEngine : public EngineThread {
public:
  /// Starts the thread. The model must outlive the engine, which alone uses it.
  /// Of the options, only the limits on requests and tokens apply.
  EmbedEngine(EmbeddingModel &model, const EngineOptions &options);
  /// Cancels unfinished requests.
  ~EmbedEngine() override;

  Submission submit(EmbedRequest request);
  /// The request's `done` is called with the cancellation unless it was called
  /// before.
  void cancel(uint64_t id);
  /// Counters of pages and generated tokens stay 0.
  EngineMetrics metrics() const;
  int64_t unfinished() const override;
  /// When the last batch was computed.
  std::optional<EngineClock::time_point> lastComputed() const override;
  const EmbeddingShape &shape() const { return model.shape(); }

private:
  struct Work;
  /// A sequence of a request, with its position in the order of arrival.
  struct Item {
    uint64_t order;
    std::shared_ptr<Work> work;
    std::size_t index;
  };
  void loop();
  /// The next batch; empty: the engine is to stop. Requests past their deadline
  /// are finished first.
  std::vector<Item> nextBatch();
  std::vector<Item> takeBatch(EngineClock::time_point now);
  void run(const std::vector<Item> &batch);
  /// Moves the request to `closed`, so that `done` can be called without the
  /// lock.
  void close(const std::shared_ptr<Work> &work, FinishReason reason,
             const std::string &message = {});
  void closeAll(FinishReason reason, const std::string &message = {});
  void callDone(std::unique_lock<std::mutex> &lock);

  EmbeddingModel &model;
  const EngineOptions options;

  // The mutex guards the members below.
  std::map<uint64_t, std::shared_ptr<Work>> open; ///< unfinished, by id
  std::map<int64_t, std::deque<Item>> queues;     ///< by shape().lengths
  std::vector<std::shared_ptr<Work>> closed;      ///< `done` not yet called
  int64_t heldTokens = 0;                         ///< of the open requests
  uint64_t nextId = 1, nextOrder = 1;
  std::optional<EngineClock::time_point> computed;
  EngineMetrics counters;
};

} // namespace tessera
