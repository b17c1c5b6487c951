#include "runtime/support/StopSignals.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace tessera {
namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

void remember(int signal) { received.store(signal, std::memory_order_relaxed); }

} // namespace

Status catchStopSignals() {
  received.store(0);
  struct sigaction action = {};
  action.sa_handler = remember;
  // SA_RESETHAND: the impatient user's second Ctrl-C is not ours to catch.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM})
    if (::sigaction(signal, &action, nullptr) != 0)
      return Status::error("cannot handle signal {}: {}", signal,
                           std::strerror(errno));
  return Status::success();
}

bool stopRequested() { return stopSignal() != 0; }

int stopSignal() { return received.load(std::memory_order_relaxed); }

} // namespace tessera
