// The thread that moves everything a world does, and the lock between it and
// the program's threads.
#pragma once
#include "runtime/comm/Channel.h"
#include "runtime/comm/Watchdog.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace tessera::comm {

class Engine {
public:
  Engine(std::unique_ptr<Transport> transport, WorldOptions options);
  /// Ends the world if it was not left.
  ~Engine();

  int rank() const { return myRank; }
  int size() const { return mySize; }
  StatusOr<Channel *> open(int id, Group group);
  StatusOr<Ticket> start(ChannelState &channel, const Collective &collective);
  Status wait(Ticket ticket);
  Status leave();

private:
  // The program's side.
  void number(Operation &operation); // under the lock
  void stopThread();

  // The thread's side.
  void run();
  /// False when the thread shall end. Sleeps if there is nothing to do.
  bool takeStarted();
  bool moveOperations();
  Status move(Operation &operation, bool &moved);
  void finish(Operation &operation);
  void listen();
  void answer(int from, const ControlMessage &question);
  void watch();
  void end(const std::string &line, bool isOurs);
  std::string state() const; // what this rank does, for answers
  std::vector<Operation *> running() const;
  void report(const std::string &text) const;
  void writeRecord(const std::string &reason) const;

  std::unique_ptr<Transport> transport;
  const WorldOptions options;
  const int myRank, mySize;
  FlightRecorder recorder;

  std::mutex mutex; // for what follows
  std::condition_variable wake, finished;
  std::unordered_map<int, std::unique_ptr<ChannelState>> states;
  ChannelState *everybody = nullptr; // for leave()
  std::deque<Channel> channels;      // a deque: they must not move
  std::deque<std::unique_ptr<Operation>> started;
  std::unordered_map<Ticket, bool> tickets; // whether it is done
  Ticket nextTicket = 0;
  Status failure;
  bool isStopping = false, hasLeft = false;

  // The thread's own.
  ControlLine control;
  Watchdog watchdog;
  std::vector<std::unique_ptr<Operation>> active; // in the order of starts
  std::string lastDone;
  Clock::time_point lastDoneTime = Clock::now(), lastListened, lastWatched;
  bool hasEnded = false, hasHurried = false;
  std::thread thread; // last: it uses everything above
};

} // namespace tessera::comm
