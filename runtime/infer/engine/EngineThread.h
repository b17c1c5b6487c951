// The common part of the engines: a thread that other threads can query and
// stop.
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

  /// Accepts no more requests, and returns when all have finished; at
  /// `deadline` the remaining ones are cancelled. Then the thread ends. May be
  /// called from several threads; each call returns when the thread has ended.
  void drain(EngineClock::time_point deadline);

  /// Requests that wait or run.
  virtual int64_t unfinished() const = 0;
  bool isBusy() const { return unfinished() > 0; }
  /// When the model last computed something; nothing if it never did.
  virtual std::optional<EngineClock::time_point> lastComputed() const = 0;
  /// The device error that stopped the engine.
  std::optional<std::string> deathCause() const;

protected:
  EngineThread() = default;
  /// `loop` returns when it drains and nothing is left, when it cancels, or
  /// after `death` is set. Call drain() before the destructor.
  void start(std::function<void()> loop);

  mutable std::mutex mutex; ///< guards the members below
  /// Wakes the loop when there is work.
  std::condition_variable wake;
  bool draining = false, cancelling = false, ended = false;
  std::optional<std::string> death;

private:
  std::condition_variable quiet; ///< notified when the loop has ended
  std::once_flag joined;
  std::thread thread;
};

} // namespace tessera
