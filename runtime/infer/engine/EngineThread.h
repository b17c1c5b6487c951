// What every engine is besides what it computes: a thread of its own, which any
// other may ask how it does, and end.
#pragma once
#include "runtime/infer/engine/Request.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tessera {

class EngineThread {
public:
  EngineThread(const EngineThread &) = delete;
  EngineThread &operator=(const EngineThread &) = delete;
  virtual ~EngineThread() = default;

  /// Takes no more requests, and returns when all have finished; at `deadline`
  /// those that are left are cancelled. Then the thread ends. Several threads
  /// may call it; each returns when all is over.
  void drain(EngineClock::time_point deadline);

  /// Requests that wait or run.
  virtual int64_t unfinished() const = 0;
  bool isBusy() const { return unfinished() > 0; }
  /// When the model last computed something; nothing if it never did.
  virtual std::optional<EngineClock::time_point> lastComputed() const = 0;
  /// The error of the device that ended the engine.
  std::optional<std::string> deathCause() const;

protected:
  EngineThread() = default;
  /// `loop` returns when it drains and nothing is left, when it cancels, or
  /// after death. Whoever starts it drains before it is destroyed.
  void start(std::function<void()> loop);

  mutable std::mutex mutex; ///< guards what follows
  /// Of the loop, when there is something to do.
  std::condition_variable wake;
  bool draining = false, cancelling = false, ended = false;
  std::optional<std::string> death;

private:
  std::condition_variable quiet; ///< when it has ended
  std::once_flag joined;
  std::thread thread;
};

} // namespace tessera
