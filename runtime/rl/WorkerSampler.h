// Samples by other processes, to which weights and requests are sent: some that
// it starts, and some that come in from other machines.
#pragma once
#include "runtime/rl/HostWeights.h"
#include "runtime/rl/WorkerListener.h"
#include "runtime/support/ChildProcess.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace tessera::rl {

/// A process that runs runRolloutWorker() at the other end.
struct StartedWorker {
  std::unique_ptr<Connection> connection;
  ChildProcess process; ///< none: on another machine
};

/// All workers must sample with equal models; the first one decides which that
/// is. A worker has up to twice the sequences that it samples at once, and what
/// no worker has yet waits here. If a worker ends, others get what it had not
/// sent: seeds and weights decide what they sample.
class WorkerSampler final : public Sampler {
public:
  using Start = std::function<StatusOr<StartedWorker>()>;
  using Note = std::function<void(std::string_view)>; ///< one line for the user

  /// Tokens of completions that are sent here are below `vocabulary`; models of
  /// workers have at most `mostWeights` bytes.
  WorkerSampler(int64_t vocabulary, uint64_t mostWeights, Note note)
      : vocabulary(vocabulary), mostWeights(mostWeights),
        note(std::move(note)) {}
  ~WorkerSampler() override;

  /// Workers of this process. One that ends is started again; if it sent
  /// nothing since its start, all that was asked for fails. Call it once.
  Status start(int count, Start start);
  /// Lets workers join until stop(). The address is that which was taken.
  StatusOr<comm::TcpAddress> listen(ListenOptions options);
  /// A worker that was not started here; from any thread. Its name is for
  /// messages.
  void add(std::unique_ptr<Connection> connection, std::string name);
  /// Waits for so many workers; false if `stop` became true before. One is
  /// required before what is below.
  StatusOr<bool> awaitWorker(const std::function<bool()> &stop, int count = 1);

  int64_t context() const override { return modelContext; }
  /// Of all workers, in this process's memory.
  ModelState &weights() override { return *staged; }
  /// Returns before the workers have the weights; the next update waits for
  /// that.
  Status updateWeights(uint32_t version,
                       const std::function<Status()> &copy) override;
  double publishSeconds() const override;
  void submit(SampleRequest request, Done done) override;
  void stop() override;

private:
  struct Pending {
    SampleRequest request;
    Done done;
    int failures = 0; ///< workers that could not sample it
  };
  struct Outgoing {
    Message message;
    /// Which are sent after the message.
    std::optional<std::vector<uint32_t>> weights = {};
  };
  struct Worker {
    std::string name; ///< "rollout worker 1"
    bool isOurs = false;
    StartedWorker started; ///< replaced by its receiver, when nothing is sent
    // Guarded by `mutex`.
    bool isReady = false;    ///< it may be sent weights and requests
    bool isSending = false;  ///< its sender is, without the mutex
    bool isGone = false;     ///< for good
    bool hasSampled = false; ///< since its start
    int64_t sequences = 1;   ///< that it samples at once
    int64_t inFlight = 0;    ///< sequences of `unfinished`
    int unsentWeights = 0;   ///< among `outgoing`, or being sent
    std::map<uint64_t, Pending> unfinished; ///< by id, so in their order
    std::deque<Outgoing> outgoing;
    std::thread receiver, sender;
  };
  struct Update {
    uint32_t version;
    comm::SocketClock::time_point begin;
    std::set<const Worker *> missing; ///< do not have it yet
  };
  using Lock = std::unique_lock<std::mutex>;

  StatusOr<StartedWorker> startOne(Worker &worker);
  void run(std::unique_ptr<Worker> worker);
  void forgetGone();
  // Of a worker's sender.
  void send(Worker &worker);
  // Of a worker's receiver.
  void serve(Worker &worker);
  void serveGuest(Worker &worker);
  Status meet(Worker &worker, Connection &connection);
  void makeReady(Worker &worker);
  Status receive(Worker &worker);
  Status take(Worker &worker, const Message &message);
  Status takeSamples(Worker &worker, const Message &message);
  Status takeFailure(Worker &worker, const Message &message);
  Status checkSamples(const Pending &pending,
                      const std::vector<Sample> &samples) const;
  std::optional<Pending> finish(Worker &worker, uint64_t id);
  std::size_t leave(Worker &worker);
  Status restart(Worker &worker, const std::string &how);
  void fail(const Status &status);
  // With the mutex.
  void dispatch();
  void queueWeights(Worker &worker, std::vector<uint32_t> parameters);
  void takeUpdated(const Worker &worker, uint32_t newest);
  bool isAnyUnsent() const;

  const int64_t vocabulary;
  const uint64_t mostWeights;
  const Note note;
  Start startWorker;
  std::unique_ptr<WorkerListener> listener;
  int64_t modelContext = 0;            ///< of the first hello
  std::unique_ptr<HostWeights> staged; ///< its bytes: see isStaging

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<Worker>> workers;
  std::map<uint64_t, Pending> queue; ///< that no worker has
  std::optional<uint32_t> version;   ///< of `staged`
  bool isStaging = false; ///< the bytes are written; else senders read them
  Status failure = Status::success(); ///< for good
  bool isOver = false;
  uint64_t nextId = 0;
  std::deque<Update> updates; ///< that not all workers have
  double published = 0;       ///< of the last one that all have
};

} // namespace tessera::rl
