// The routes of /v1/training: adapters of a learner, trained by requests.
#pragma once
#include "runtime/serve/Training.h"
#include "runtime/tune/AdapterLearner.h"
#include "runtime/tune/Examples.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace tessera::tune {

struct TrainingOptions {
  std::string directory;        ///< of saved adapters; empty: none can be saved
  int64_t adapters = 1;         ///< at once
  std::size_t maxRequests = 64; ///< that wait
  std::size_t maxBytes = std::size_t(64) << 20; ///< of their bodies together
};

class TrainingService final : public serve::TrainingHandler {
public:
  /// The model that learns, with its base's weights and programs of separate
  /// steps.
  static StatusOr<std::unique_ptr<TrainingService>>
  create(std::unique_ptr<SessionModel> model, TrainingOptions options);
  ~TrainingService() override;

  void attach(serve::AdapterPublisher &to) override { publisher = &to; }
  bool submit(serve::TrainingRequest request,
              std::function<void(serve::TrainingResult)> done) override;
  void stop() override;

private:
  TrainingService(std::unique_ptr<SessionModel> model, TrainingOptions options)
      : model(std::move(model)), options(std::move(options)) {}
  void loop();
  serve::TrainingResult run(const serve::TrainingRequest &request);
  serve::TrainingResult create(const JsonValue &body);
  serve::TrainingResult list() const;
  serve::TrainingResult erase(const std::string &name);
  serve::TrainingResult forwardBackward(const std::string &name,
                                        const JsonValue &body);
  serve::TrainingResult optimStep(const std::string &name,
                                  const JsonValue &body);
  serve::TrainingResult save(const std::string &name, const JsonValue &body);
  serve::TrainingResult load(const std::string &name, const JsonValue &body);
  Status publish(const std::string &name);

  std::unique_ptr<SessionModel> model;
  const TrainingOptions options;
  std::unique_ptr<AdapterLearner> learner;
  ExampleShape shape;
  serve::AdapterPublisher *publisher = nullptr;

  using Work = std::pair<serve::TrainingRequest,
                         std::function<void(serve::TrainingResult)>>;
  std::atomic<bool> isStopping = false;
  std::mutex mutex; ///< guards the members below
  std::condition_variable changed;
  std::deque<Work> waiting;
  std::size_t waitingBytes = 0;
  std::jthread thread;
};

} // namespace tessera::tune
