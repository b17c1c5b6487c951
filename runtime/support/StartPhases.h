// Where the time goes until a process can do what it was started for.
#pragma once
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// Times the phases of a start, from the start of the process if /proc has it
/// (in hundredths of a second), otherwise from the construction of this object.
class StartPhases {
public:
  StartPhases();
  /// Ends the current phase and names it.
  void end(std::string name);
  /// "1.42 s (program 0.20, weights 1.10, first token 0.12)": all of it, then
  /// the phases in their order.
  std::string describe() const;

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin, last;
  std::vector<std::pair<std::string, double>> phases; // seconds
};

/// The same; does nothing if `phases` is null.
inline void endPhase(StartPhases *phases, std::string name) {
  if (phases)
    phases->end(std::move(name));
}

} // namespace tessera
