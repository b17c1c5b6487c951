// A collective between its start and its end, inside the engine.
#pragma once
#include "runtime/comm/Algorithms.h"
#include "runtime/comm/Channel.h"
#include "runtime/comm/Control.h"
#include "runtime/comm/FlightRecorder.h"

#include <map>
#include <optional>

namespace tessera::comm {

/// A channel as the engine keeps it.
struct ChannelState {
  ChannelState(int id, Group given, int me)
      : id(id), group(std::move(given)), me(me),
        sends(static_cast<std::size_t>(group.size())),
        receives(static_cast<std::size_t>(group.size())) {}

  const int id;
  const Group group;
  const int me;
  // How many collectives were started, and how many exchanges with each
  // member. Under the engine's lock.
  std::uint64_t collectives = 0, history = 0;
  std::vector<std::uint64_t> sends, receives;
  // Collectives of one channel run one after the other and share this.
  Staging staging;
};

/// What others said about an operation that waits for them.
struct Inquiry {
  struct Answer {
    std::uint64_t entered = 0;
    bool isWaiting = false;
    std::string line;
    Clock::time_point when;
  };
  std::optional<Clock::time_point> firstAsked;
  Clock::time_point lastAsked;
  std::map<std::pair<int, Counter>, Answer> answers; ///< by rank
};

struct Operation {
  Operation(Transport &transport, ChannelState &channel, const Collective &what,
            Ticket ticket)
      : ticket(ticket), channel(channel), what(what),
        traffic(transport, channel.group, channel.me,
                Tags::of(channel.id, what.isExchange()), outgoing, expected) {}

  const Ticket ticket;
  ChannelState &channel;
  const Collective &what;
  Signature outgoing, expected;
  Traffic traffic;
  std::optional<Steps> steps; ///< once it runs
  bool isDone = false;
  Record record; ///< as the recorder had it at the start
  std::uint64_t recordId = 0;
  Clock::time_point lastMoved; ///< once it runs
  Inquiry inquiry;

  /// Whether `later` of the same rank must wait for this.
  bool isBefore(const Operation &later) const {
    // If another library moves the data, nothing is sent here after the headers
    // were compared.
    if (what.isDone && steps && steps->done())
      return false;
    if (&channel != &later.channel ||
        what.isExchange() != later.what.isExchange())
      return false;
    const auto same = [](int a, int b) { return a != -1 && a == b; };
    return !what.isExchange() || same(what.sendTo, later.what.sendTo) ||
           same(what.receiveFrom, later.what.receiveFrom);
  }
};

} // namespace tessera::comm
