// A program that this process started.
#pragma once
#include "runtime/support/Status.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace tessera {

class ChildProcess {
public:
  /// A descriptor of this process, and its number in the child.
  struct Descriptor {
    int ours, theirs;
  };
  ChildProcess() = default; ///< none
  ChildProcess(ChildProcess &&other) noexcept
      : process(std::exchange(other.process, -1)) {}
  ChildProcess &operator=(ChildProcess &&other) noexcept {
    std::swap(process, other.process);
    return *this;
  }
  ~ChildProcess() { end(); }

  /// Starts the program `words[0]`, a path. It has the given descriptors and
  /// those of this process that are not closed on exec. It is in a process
  /// group of its own: what it starts ends with it, and Ctrl-C is only for this
  /// process.
  static StatusOr<ChildProcess> start(const std::vector<std::string> &words,
                                      std::span<const Descriptor> descriptors);

  bool isRunning() const { return process >= 0; }
  /// Kills it and what it started, if anything runs, and waits for its end.
  void end();
  /// Of one that isRunning() and closed its descriptors: how it ended, for a
  /// message that begins with its name, such as "exited with code 3". Nothing
  /// runs afterwards.
  std::string ending();

private:
  pid_t process = -1;
};

} // namespace tessera
