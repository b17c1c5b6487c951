// Samples by other processes, to which weights and requests are sent.
#pragma once
#include "runtime/rl/HostWeights.h"
#include "runtime/rl/WorkerMessages.h"
#include "runtime/support/ChildProcess.h"

#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace tessera::rl {

/// A process that runs runRolloutWorker() at the other end.
struct StartedWorker {
  std::unique_ptr<Connection> connection;
  ChildProcess process;
};

class WorkerSampler final : public Sampler {
public:
  using Start = std::function<StatusOr<StartedWorker>()>;
  using Note = std::function<void(std::string_view)>; ///< one line for the user

  /// Starts the workers, which must sample with equal models. A worker that
  /// ends is started again, and samples again what it had not sent: seeds and
  /// weights decide what that is. If it sent nothing since its start, what it
  /// was asked for fails.
  static StatusOr<std::unique_ptr<WorkerSampler>> create(int count, Start start,
                                                         Note note);
  ~WorkerSampler() override;

  int64_t context() const override { return modelContext; }
  /// Of all workers, in this process's memory.
  ModelState &weights() override { return *staged; }
  Status updateWeights(uint32_t version,
                       const std::function<Status()> &copy) override;
  void submit(SampleRequest request, Done done) override;
  void stop() override;

private:
  struct Pending {
    SampleRequest request;
    Done done;
  };
  struct Worker {
    int number = 0; ///< from 1
    std::mutex sending;
    StartedWorker started; ///< replaced by its thread, with `sending`
    // Guarded by `mutex`.
    std::map<uint64_t, Pending> unfinished; ///< by id, so in their order
    bool hasSampled = false;                ///< since its start
    Status failure = Status::success();     ///< for good
    std::thread thread;
  };

  WorkerSampler(Start start, Note note)
      : start(std::move(start)), note(std::move(note)) {}
  StatusOr<StartedWorker> startOne(int number);
  Status sendWeights(Worker &worker, std::span<const uint32_t> parameters);
  void serve(Worker &worker);
  Status receive(Worker &worker);
  Status take(Worker &worker, const Message &message);
  Status restart(Worker &worker, const std::string &how);
  void fail(Worker &worker, const Status &status);
  std::optional<Pending> finish(Worker &worker, uint64_t id);

  const Start start;
  const Note note;
  int64_t modelContext = 0;
  std::vector<std::unique_ptr<Worker>> workers;

  /// Guards the next two. Taken before `sending`, and that before `mutex`.
  std::mutex staging;
  std::unique_ptr<HostWeights> staged;
  std::optional<uint32_t> version;

  std::mutex mutex;
  bool isOver = false;
  uint64_t nextId = 0;
};

} // namespace tessera::rl
