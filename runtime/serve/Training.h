// What a server that trains adapters (`tessera serve --train`) needs besides
// serving them: an interface, so that the service knows nothing of training.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/Routes.h"
#include "runtime/weights/AdapterFile.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <variant>

namespace tessera::serve {

/// Makes adapters known to the engine, by the names of models.
class AdapterPublisher {
public:
  virtual ~AdapterPublisher() = default;
  /// Requests that name the model sample with these factors from now on; those
  /// in progress end with what they began with. Waits for a slot. Neither for
  /// the server's thread nor for the engine's.
  virtual Status publish(const std::string &name,
                         const AdapterFile &adapter) = 0;
  /// Whether the model or an adapter has the name; waits as below.
  virtual bool isTaken(const std::string &name) = 0;
  /// The name is unknown from now on; waits for the server's thread.
  virtual void withdraw(const std::string &name) = 0;
};

struct TrainingRequest {
  RouteId route;
  std::string adapter; ///< of the path; empty: the path has none
  std::string body;
  /// Set when the client has disconnected; a request that waits is then not
  /// run.
  std::shared_ptr<std::atomic<bool>> isGone;
};

/// The JSON body of a 200, or an error.
using TrainingResult = std::variant<std::string, ApiError>;

class TrainingHandler {
public:
  virtual ~TrainingHandler() = default;
  /// Before the first request. The publisher must live until stop().
  virtual void attach(AdapterPublisher &publisher) = 0;
  /// Requests run in order, on a thread of their own, which calls `done` once.
  /// False: too many are waiting.
  virtual bool submit(TrainingRequest request,
                      std::function<void(TrainingResult)> done) = 0;
  /// Waits for the batch or step that runs; unfinished requests get an error.
  virtual void stop() = 0;
};

} // namespace tessera::serve
