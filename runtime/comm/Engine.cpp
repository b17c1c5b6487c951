#include "runtime/comm/Engine.h"

#include "runtime/support/StopSignals.h"

#include <algorithm>
#include <csignal>
#include <new>

namespace tessera::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// How long the thread spins before it sleeps between polls, and how long it
/// sleeps. Ranks often share processors with those that they wait for.
constexpr microseconds kTurning{200};
constexpr microseconds kFirstSleep{20}, kLongestSleep{500};
/// Between two looks for control messages, and at what does not move.
constexpr milliseconds kListening{2}, kWatching{20};
/// How long news of the end may take to the others before callers return, and
/// how long these may take to report where they were before the process ends.
constexpr milliseconds kFarewell{400}, kReporting{400};

/// Waits longer the longer nothing moves.
class Patience {
public:
  void restart() { since.reset(); }
  void pause() {
    const Clock::time_point now = Clock::now();
    if (!since) {
      since = now;
      sleep = kFirstSleep;
    }
    if (now - *since < kTurning)
      return std::this_thread::yield();
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, kLongestSleep);
  }

private:
  std::optional<Clock::time_point> since;
  microseconds sleep = kFirstSleep;
};

} // namespace

Engine::Engine(std::unique_ptr<Transport> given, WorldOptions chosen)
    : transport(std::move(given)), options(std::move(chosen)),
      myRank(transport->rank()), mySize(transport->size()), control(*transport),
      watchdog(control, myRank, options.timeout) {
  auto &state = states[World::kMaxChannels];
  state = std::make_unique<ChannelState>(World::kMaxChannels,
                                         Group::world(mySize), myRank);
  everybody = state.get();
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread = std::thread(&Engine::run, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Engine::~Engine() {
  stopThread();
  if (!hasLeft && mySize > 1 && !hasEnded)
    end(fmt::format("rank {} ended before the others", myRank), true);
}

StatusOr<Channel *> Engine::open(int id, Group group) {
  if (id < 0 || id >= World::kMaxChannels)
    return Status::error("a channel has id {}: use 0 to {}", id,
                         World::kMaxChannels - 1);
  const std::optional<int> me = group.memberOf(myRank);
  if (!me)
    return Status::error("rank {} opens a channel of the group {}, of which it "
                         "is not a member",
                         myRank, group.text());
  std::lock_guard lock(mutex);
  auto [state, isNew] = states.try_emplace(id);
  if (!isNew)
    return Status::error("channel {} is open already, for the group {}", id,
                         state->second->group.text());
  state->second = std::make_unique<ChannelState>(id, std::move(group), *me);
  return &channels.emplace_back(*this, *state->second);
}

void Engine::number(Operation &operation) {
  ChannelState &channel = operation.channel;
  const Collective &what = operation.what;
  const Group &group = channel.group;
  Record &record = operation.record;
  record.group = &group;
  const auto signature = [&](std::uint64_t sequence) {
    return signatureOf(what, group, channel.id, sequence, channel.history);
  };
  if (!what.isExchange()) {
    operation.outgoing = operation.expected = signature(channel.collectives++);
    channel.history = operation.outgoing.history;
  } else {
    const auto next = [](std::vector<std::uint64_t> &counts, int member) {
      return member == -1 ? 0 : counts[static_cast<std::size_t>(member)]++;
    };
    operation.outgoing = signature(next(channel.sends, what.sendTo));
    operation.expected = signature(next(channel.receives, what.receiveFrom));
    operation.expected.elements = what.receiveCounts[0];
    record.sendTo = what.sendTo == -1 ? -1 : group.rankOf(what.sendTo);
    record.receiveFrom =
        what.receiveFrom == -1 ? -1 : group.rankOf(what.receiveFrom);
    record.receiveElements = operation.expected.elements;
    record.receiveSequence = operation.expected.sequence;
  }
  record.signature = operation.outgoing;
  record.queued = Clock::now();
  operation.recordId = recorder.add(record);
}

StatusOr<Ticket> Engine::start(ChannelState &channel,
                               const Collective &collective) {
  TESSERA_RETURN_IF_ERROR(
      checkCollective(collective, channel.group, channel.me));
  std::lock_guard lock(mutex);
  if (!failure.ok())
    return failure;
  if (isStopping)
    return Status::error("{}: the world was left", nameOf(collective));
  const Ticket ticket = nextTicket++;
  auto operation =
      std::make_unique<Operation>(*transport, channel, collective, ticket);
  number(*operation);
  tickets.emplace(ticket, false);
  started.push_back(std::move(operation));
  wake.notify_one();
  return ticket;
}

Status Engine::wait(Ticket ticket) {
  std::unique_lock lock(mutex);
  const auto found = tickets.find(ticket);
  if (found == tickets.end())
    return Status::error("nothing that was started has ticket {}: wait once "
                         "for each",
                         ticket);
  // Other threads start and wait in the meantime, which invalidates iterators.
  const bool &done = found->second;
  finished.wait(lock, [&] { return done || !failure.ok(); });
  const bool isDone = done;
  tickets.erase(ticket);
  return isDone ? Status::success() : failure;
}

Status Engine::leave() {
  {
    std::lock_guard lock(mutex);
    if (!tickets.empty())
      return Status::error(
          "rank {} leaves with {} collectives that it did not wait for", myRank,
          tickets.size());
  }
  // A barrier, so that an error names a late or missing rank.
  const Collective last = Collective::barrier();
  StatusOr<Ticket> ticket = start(*everybody, last);
  if (!ticket.ok())
    return ticket.status();
  const Status left = wait(*ticket);
  stopThread();
  TESSERA_RETURN_IF_ERROR(left);
  hasLeft = true;
  control.close(); // drops pending answers
  return transport->finish();
}

void Engine::stopThread() {
  {
    std::lock_guard lock(mutex);
    isStopping = true;
    wake.notify_one();
  }
  if (thread.joinable())
    thread.join();
}

void Engine::run() {
  Patience patience;
  while (takeStarted()) {
    const bool moved = moveOperations();
    const Clock::time_point now = Clock::now();
    if (now - lastListened >= kListening) {
      lastListened = now;
      listen();
    }
    if (now - lastWatched >= kWatching) {
      lastWatched = now;
      watch();
    }
    if (moved)
      patience.restart();
    else if (!active.empty())
      patience.pause();
  }
}

bool Engine::takeStarted() {
  std::unique_lock lock(mutex);
  if (active.empty() && started.empty() && !isStopping)
    wake.wait_for(lock, kWatching);
  if (isStopping && started.empty())
    return false;
  for (std::unique_ptr<Operation> &operation : started)
    active.push_back(std::move(operation));
  started.clear();
  return true;
}

std::vector<Operation *> Engine::running() const {
  std::vector<Operation *> running;
  for (const std::unique_ptr<Operation> &operation : active)
    if (operation->steps)
      running.push_back(operation.get());
  return running;
}

bool Engine::moveOperations() {
  bool moved = false;
  for (std::size_t i = 0; i < active.size() && !hasEnded; ++i) {
    Operation &operation = *active[i];
    const auto isBefore = [&](const std::unique_ptr<Operation> &earlier) {
      return earlier->isBefore(operation);
    };
    if (!operation.steps &&
        std::any_of(active.begin(), active.begin() + static_cast<long>(i),
                    isBefore))
      continue;
    bool movedThis = false;
    if (const Status status = move(operation, movedThis); !status.ok())
      end(status.message(), true);
    if (movedThis)
      operation.lastMoved = Clock::now();
    moved |= movedThis;
  }
  std::erase_if(active, [&](const std::unique_ptr<Operation> &operation) {
    if (operation->isDone)
      finish(*operation);
    return operation->isDone;
  });
  return moved;
}

Status Engine::move(Operation &operation, bool &moved) {
  try {
    if (!operation.steps) {
      operation.steps.emplace(runCollective(operation.what, operation.traffic,
                                            operation.channel.staging));
      recorder.start(operation.recordId, Clock::now());
      moved = true;
      operation.steps->start().resume();
    }
    while (!operation.steps->done()) {
      StatusOr<bool> step = operation.traffic.advance();
      if (!step.ok())
        return step.status();
      moved |= *step;
      if (!operation.traffic.isSettled())
        return Status::success();
      operation.traffic.takeWaiting().resume();
    }
    if (operation.what.isDone) {
      StatusOr<bool> isDone = operation.what.isDone();
      if (!isDone.ok() || !*isDone)
        return isDone.status();
      moved = true;
    }
    operation.isDone = true;
  } catch (const std::bad_alloc &) {
    return Status::error("rank {} has no memory left for {}", myRank,
                         operation.record.text());
  }
  return Status::success();
}

void Engine::finish(Operation &operation) {
  lastDoneTime = Clock::now();
  lastDone = operation.record.text();
  recorder.end(operation.recordId, lastDoneTime);
  std::lock_guard lock(mutex);
  tickets[operation.ticket] = true;
  finished.notify_all();
}

void Engine::listen() {
  while (auto arrived = control.poll()) {
    const auto &[from, message] = *arrived;
    switch (message.kind) {
    case ControlMessage::Kind::question:
      answer(from, message);
      break;
    case ControlMessage::Kind::answer:
      Watchdog::take(running(), from, message);
      break;
    case ControlMessage::Kind::end:
      end(fmt::format("ended by rank {}: {}", from, message.text()), false);
      break;
    }
  }
}

std::string Engine::state() const {
  for (const Operation *operation : running())
    if (const std::vector<int> peers = operation->traffic.openPeers();
        !peers.empty())
      return fmt::format("waits for {} in {}", rankList(peers),
                         operation->record.text());
  if (lastDone.empty())
    return "has not entered any collective";
  return fmt::format(
      "is elsewhere since it finished {} {:.1f} s ago", lastDone,
      std::chrono::duration<double>(Clock::now() - lastDoneTime).count());
}

void Engine::answer(int from, const ControlMessage &question) {
  ControlMessage reply;
  reply.kind = ControlMessage::Kind::answer;
  reply.channel = question.channel;
  reply.counter = question.counter;
  reply.isWaiting = !running().empty();
  reply.setLine(state());
  {
    std::lock_guard lock(mutex);
    const auto found = states.find(question.channel);
    const ChannelState *channel =
        found == states.end() ? nullptr : found->second.get();
    const std::optional<int> member =
        channel ? channel->group.memberOf(from) : std::nullopt;
    if (member) {
      const auto index = static_cast<std::size_t>(*member);
      reply.entered =
          question.counter == Counter::collectives ? channel->collectives
          : question.counter == Counter::sends     ? channel->sends[index]
                                                   : channel->receives[index];
    }
  }
  control.send(from, reply);
}

void Engine::watch() {
  if (hasEnded)
    return;
  if (!hasHurried && stopSignal() != 0) {
    hasHurried = true;
    watchdog.hurry();
  }
  const std::vector<Operation *> all = running();
  if (const Status status = watchdog.check(all); !status.ok())
    return end(status.message(), true);
  if (const auto line = watchdog.hurriedReport(all)) {
    report(fmt::format("rank {} was told to end by signal {}: {}\n", myRank,
                       stopSignal(), *line));
    writeRecord(*line);
  }
}

void Engine::end(const std::string &line, bool isOurs) {
  if (hasEnded)
    return;
  hasEnded = true;
  report(fmt::format("rank {}: {}\n{}", myRank, line, recorder.describe()));
  writeRecord(line);
  if (isOurs) {
    ControlMessage news;
    news.kind = ControlMessage::Kind::end;
    news.setLine(line);
    for (int rank = 0; rank < mySize; ++rank)
      if (rank != myRank)
        control.send(rank, news);
  }
  for (const std::unique_ptr<Operation> &operation : active)
    operation->traffic.abandon(); // waiting callers may reuse the buffers
  // Callers return after the farewell: an MPI on the same host reads long
  // messages from the sender's memory and aborts if that was freed.
  const Clock::time_point until = Clock::now() + kFarewell;
  do {
    (void)control.poll();
    std::this_thread::sleep_for(kFirstSleep);
  } while (Clock::now() < until);
  {
    std::unique_lock lock(mutex);
    failure = Status::error("{}", line);
    finished.notify_all();
    wake.wait_for(lock, kReporting, [&] { return isStopping; });
  }
  transport->abort(kEndedExitCode);
}

void Engine::report(const std::string &text) const {
  if (options.report)
    return options.report(text);
  const std::string lines = "tessera: " + text;
  std::fwrite(lines.data(), 1, lines.size(), stderr);
}

void Engine::writeRecord(const std::string &reason) const {
  if (options.recordFolder.empty())
    return;
  const std::string path =
      fmt::format("{}/rank-{}.json", options.recordFolder, myRank);
  if (const Status status = recorder.write(path, myRank, mySize, reason);
      !status.ok())
    report(fmt::format("rank {}: {}\n", myRank, status.message()));
}

} // namespace tessera::comm
