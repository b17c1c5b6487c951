// The interface to communication: a world that a process joins, and its
// channels.
//
//   auto launch = comm::readLaunch();              // Launch.h
//   auto world = comm::World::join(*launch, {});
//   auto channel = (*world)->open(0, Group::world((*world)->size()));
//   (*channel)->run(Collective::allReduce(ElementType::f32, Reduction::sum,
//                                         gradients, count));
//   (*world)->leave();
//
#pragma once
#include "runtime/comm/Collective.h"
#include "runtime/comm/Launch.h"
#include "runtime/comm/Transport.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tessera::comm {

class Engine;
struct ChannelState;

/// A collective that was started and not yet waited for.
using Ticket = std::uint64_t;

/// A group's line: what its members do together happens in the order in which
/// they start it. Collectives of different channels run at the same time, and
/// so do exchanges and collectives of one, and exchanges of one that differ in
/// their peers. All members have to start the same collectives in the same
/// order; a difference is found before any data moves and ends the world.
class Channel {
public:
  Channel(Engine &engine, ChannelState &state) : engine(engine), state(state) {}
  const Group &group() const;
  /// This rank's number in the group.
  int member() const;
  int id() const;

  /// Allocates the staging memory that the collective will need, so that none
  /// is allocated later. Must not be called while a collective of the channel
  /// is in flight.
  Status prepare(const Collective &collective);
  /// The collective and its buffers must not change until wait(). An error says
  /// why it cannot be done, or why the world ended.
  StatusOr<Ticket> start(const Collective &collective);
  /// Blocks until that one is done; once for each ticket.
  Status wait(Ticket ticket);
  Status run(const Collective &collective);

private:
  Engine &engine;
  ChannelState &state;
};

struct WorldOptions {
  /// How long a collective may wait for another rank without anything moving
  /// before the world is ended. Longer than the longest that a rank may compute
  /// between two collectives.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// An existing folder for flight records (rank-3.json); empty: none.
  std::string recordFolder = {};
  /// Where reports go; empty: stderr. One call with whole lines.
  std::function<void(const std::string &)> report = {};
};

/// The exit code of ranks that end because a collective cannot be finished.
inline constexpr int kEndedExitCode = 70;

/// All ranks of a job, as seen by one of them. A background thread moves all
/// data; the program's threads start collectives and wait.
///
/// When a rank is missing for longer than the timeout, calls another collective
/// than the others or ends without leave(), every surviving rank reports that
/// rank and the collective, with its own latest ones. Started collectives and
/// waits fail with that line, and processes end with kEndedExitCode.
class World {
public:
  /// Over what started this process: its MPI, or TCP if there is none. All
  /// ranks call it.
  static StatusOr<std::unique_ptr<World>> join(const Launch &launch,
                                               WorldOptions options);
  /// Over a transport.
  static std::unique_ptr<World> over(std::unique_ptr<Transport> transport,
                                     WorldOptions options);
  /// Ends all ranks if this one did not leave.
  ~World();

  int rank() const;
  int size() const;

  /// Opens a channel, which lives as long as the world. Members give it the
  /// same id, 0 <= id < kMaxChannels, and the same group; an id is used once.
  /// This rank must be a member. Nothing is sent.
  StatusOr<Channel *> open(int id, Group group);
  static constexpr int kMaxChannels = 8000;

  /// An orderly end, called on all ranks when every ticket was waited for.
  /// Channels are of no use afterwards.
  Status leave();

private:
  explicit World(std::unique_ptr<Engine> engine);
  std::unique_ptr<Engine> engine;
};

} // namespace tessera::comm
