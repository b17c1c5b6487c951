// Who knows of what: vector clocks (Lamport 1978; Mattern 1989) of everything
// that accesses memory by itself. Threads that met at a barrier share one
// immutable vector, so that meeting costs little.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::emulated {

/// Threads have their numbers; tensor cores, mbarriers and bulk stores follow.
using Agent = std::uint32_t;

/// A moment of one agent.
struct Epoch {
  Agent agent = 0;
  std::uint32_t time = 0; ///< 0: never
  bool operator==(const Epoch &) const = default;
};

/// By agent, the last moment that is known; 0 beyond the end.
using Times = std::vector<std::uint32_t>;
using Known = std::shared_ptr<const Times>;

inline void learn(Times &times, Epoch epoch) {
  if (times.size() <= epoch.agent)
    times.resize(epoch.agent + 1);
  times[epoch.agent] = std::max(times[epoch.agent], epoch.time);
}

inline void learn(Times &times, const Times &others) {
  if (times.size() < others.size())
    times.resize(others.size());
  for (std::size_t i = 0; i < others.size(); ++i)
    times[i] = std::max(times[i], others[i]);
}

/// What one thread knows.
struct Clock {
  Epoch now;   ///< the thread's own
  Known known; ///< of the others

  bool knows(Epoch epoch) const {
    return epoch.agent == now.agent ? epoch.time <= now.time
                                    : epoch.agent < known->size() &&
                                          (*known)[epoch.agent] >= epoch.time;
  }
};

/// Where what arriving threads know is gathered for those that wait.
class Meeting {
public:
  void clear() { *this = {}; }
  /// The thread's accesses so far are before what waiting threads learn from
  /// here on.
  void release(Clock &thread) {
    if (thread.known != last) {
      last = thread.known;
      learn(times, *last);
    }
    learn(times, thread.now);
    ++thread.now.time;
    told = nullptr;
  }
  void add(Epoch epoch) {
    learn(times, epoch);
    told = nullptr;
  }
  /// All of it, for threads that may know less.
  const Known &tell() {
    if (!told)
      told = std::make_shared<const Times>(times);
    return told;
  }

private:
  Times times;
  Known last, told;
};

/// A thread learns what `from` has. Threads that know the same then share the
/// result again, as long as one `Learning` serves them.
class Learning {
public:
  void operator()(Clock &thread, const Known &from) {
    if (thread.known == from || from->empty())
      return;
    if (thread.known != before || from != learned) {
      Times times = *thread.known;
      learn(times, *from);
      before = thread.known;
      learned = from;
      after = std::make_shared<const Times>(std::move(times));
    }
    thread.known = after;
  }
  void operator()(Clock &thread, Epoch epoch) {
    if (thread.knows(epoch))
      return;
    if (thread.known != before || !(epoch == single)) {
      Times times = *thread.known;
      learn(times, epoch);
      before = thread.known;
      learned = nullptr;
      single = epoch;
      after = std::make_shared<const Times>(std::move(times));
    }
    thread.known = after;
  }

private:
  Known before, learned, after;
  Epoch single;
};

} // namespace tessera::emulated
