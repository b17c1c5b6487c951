// What is known of an engine from any thread, whatever it computes.
#pragma once
#include "runtime/infer/engine/Request.h"

#include <optional>
#include <string>

namespace tessera {

class EngineState {
public:
  virtual ~EngineState() = default;
  /// Whether requests are unfinished.
  virtual bool isBusy() const = 0;
  /// When the model last computed something; nothing if it never did.
  virtual std::optional<EngineClock::time_point> lastComputed() const = 0;
  /// The error of the device that ended the engine.
  virtual std::optional<std::string> deathCause() const = 0;
};

} // namespace tessera
