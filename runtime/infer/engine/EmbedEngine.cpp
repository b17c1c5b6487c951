#include "runtime/infer/engine/EmbedEngine.h"

#include <algorithm>
#include <utility>

namespace tessera {

struct EmbedEngine::Work {
  EmbedRequest request;
  EmbedResult result;
  uint64_t id = 0;
  EngineClock::time_point arrived;
  std::size_t left = 0; ///< sequences without an embedding
  bool started = false, isClosed = false;
};

EmbedEngine::EmbedEngine(EmbeddingModel &model, const EngineOptions &options)
    : model(model), options(options) {
  start([this] { loop(); });
}

EmbedEngine::~EmbedEngine() { drain(EngineClock::now()); }

//===--- any thread -------------------------------------------------------===//

Submission EmbedEngine::submit(EmbedRequest request) {
  using Outcome = Submission::Outcome;
  auto work = std::make_shared<Work>();
  for (const std::vector<int32_t> &text : request.sequences) {
    if (Status status = checkText(model.shape(), text); !status.ok())
      return {Outcome::invalid, status.message(), {}};
    work->result.tokens += int64_t(text.size());
  }
  if (request.sequences.empty())
    return {Outcome::invalid, "the request has no sequence", {}};
  const int64_t tokens = work->result.tokens;
  // A request that exceeds an empty queue can never run.
  if (tokens > options.maxTokens)
    return {Outcome::invalid,
            fmt::format("{} tokens in total exceed the queue's limit of {}",
                        tokens, options.maxTokens),
            {}};
  work->left = request.sequences.size();
  work->result.vectors.resize(request.sequences.size() * model.shape().width);
  work->request = std::move(request);
  work->arrived = EngineClock::now();
  std::lock_guard lock(mutex);
  if (death)
    return {Outcome::closed, "the engine has stopped: " + *death, {}};
  if (draining)
    return {Outcome::closed, "the server is shutting down", {}};
  if (int64_t(open.size()) >= options.maxRequests ||
      heldTokens + tokens > options.maxTokens)
    return {Outcome::full,
            fmt::format("{} requests of {} tokens are unfinished; try "
                        "again later",
                        open.size(), heldTokens),
            {}};
  work->id = nextId++;
  heldTokens += tokens;
  open.emplace(work->id, work);
  for (std::size_t i = 0; i < work->left; ++i) {
    auto length = int64_t(work->request.sequences[i].size());
    queues[model.shape().lengthFor(length)].push_back({nextOrder++, work, i});
  }
  wake.notify_one();
  return {Outcome::accepted, {}, {work->id}};
}

void EmbedEngine::cancel(uint64_t id) {
  std::lock_guard lock(mutex);
  if (auto found = open.find(id); found != open.end()) {
    close(std::shared_ptr<Work>(found->second), FinishReason::cancelled);
    wake.notify_one();
  }
}

EngineMetrics EmbedEngine::metrics() const {
  std::lock_guard lock(mutex);
  EngineMetrics copy = counters;
  for (const auto &[id, work] : open)
    ++(work->started ? copy.running : copy.waiting);
  return copy;
}

int64_t EmbedEngine::unfinished() const {
  std::lock_guard lock(mutex);
  return int64_t(open.size());
}

std::optional<EngineClock::time_point> EmbedEngine::lastComputed() const {
  std::lock_guard lock(mutex);
  return computed;
}

//===--- with the lock held -----------------------------------------------===//

// Sequences of a closed request that are still queued are skipped later.
void EmbedEngine::close(const std::shared_ptr<Work> &work, FinishReason reason,
                        const std::string &message) {
  if (work->isClosed)
    return;
  work->isClosed = true;
  work->result.reason = reason;
  work->result.message = message;
  if (reason != FinishReason::stop)
    work->result.vectors.clear();
  ++counters.finished[std::size_t(reason)];
  counters.endToEnd.add(secondsOf(EngineClock::now() - work->arrived));
  heldTokens -= work->result.tokens;
  open.erase(work->id);
  closed.push_back(work);
}

void EmbedEngine::closeAll(FinishReason reason, const std::string &message) {
  while (!open.empty())
    close(std::shared_ptr<Work>(open.begin()->second), reason, message);
  queues.clear();
}

void EmbedEngine::callDone(std::unique_lock<std::mutex> &lock) {
  while (!closed.empty()) {
    std::vector<std::shared_ptr<Work>> now = std::exchange(closed, {});
    lock.unlock();
    for (const std::shared_ptr<Work> &each : now)
      each->request.done(std::move(each->result));
    lock.lock();
  }
}

// The sequence that has waited longest, and the following ones of its length.
std::vector<EmbedEngine::Item>
EmbedEngine::takeBatch(EngineClock::time_point now) {
  for (auto it = queues.begin(); it != queues.end();) {
    std::deque<Item> &queue = it->second;
    while (!queue.empty()) {
      std::shared_ptr<Work> work = queue.front().work;
      if (!work->isClosed && work->request.deadline &&
          *work->request.deadline < now)
        close(work, FinishReason::deadline);
      if (!work->isClosed)
        break;
      queue.pop_front();
    }
    it = queue.empty() ? queues.erase(it) : std::next(it);
  }
  auto oldest = std::ranges::min_element(
      queues, {}, [](const auto &queue) { return queue.second.front().order; });
  std::vector<Item> batch;
  if (oldest == queues.end())
    return batch;
  std::deque<Item> &queue = oldest->second;
  while (!queue.empty() && int64_t(batch.size()) < model.shape().batch) {
    if (!queue.front().work->isClosed)
      batch.push_back(std::move(queue.front()));
    queue.pop_front();
  }
  for (const Item &item : batch)
    if (!std::exchange(item.work->started, true)) {
      counters.queue.add(secondsOf(now - item.work->arrived));
      counters.promptTokens += uint64_t(item.work->result.tokens);
    }
  return batch;
}

//===--- the engine's thread ----------------------------------------------===//

std::vector<EmbedEngine::Item> EmbedEngine::nextBatch() {
  std::unique_lock lock(mutex);
  for (;;) {
    callDone(lock);
    if (cancelling)
      closeAll(FinishReason::cancelled, "");
    std::vector<Item> batch = takeBatch(EngineClock::now());
    if (!batch.empty())
      return batch;
    if (!closed.empty())
      continue;
    if (draining)
      return {};
    wake.wait(lock, [&] {
      return !queues.empty() || !closed.empty() || draining || cancelling;
    });
  }
}

void EmbedEngine::run(const std::vector<Item> &batch) {
  const auto width = std::size_t(model.shape().width);
  std::vector<TokenSequence> sequences;
  sequences.reserve(batch.size());
  for (const Item &item : batch) {
    const EmbedRequest &request = item.work->request;
    TokenSequence &each = sequences.emplace_back(request.sequences[item.index]);
    if (!request.secondBegins.empty())
      each.secondBegins = request.secondBegins[item.index];
  }
  std::vector<float> vectors(batch.size() * width);
  Status status = model.embed(sequences, vectors);
  std::unique_lock lock(mutex);
  ++counters.iterations;
  if (!status.ok()) {
    death = status.message();
    closeAll(FinishReason::error, status.message());
    return callDone(lock);
  }
  computed = EngineClock::now();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Work &work = *batch[i].work;
    if (work.isClosed) // its results are gone
      continue;
    std::copy_n(vectors.begin() + long(i * width), width,
                work.result.vectors.begin() + long(batch[i].index * width));
    if (--work.left == 0)
      close(batch[i].work, FinishReason::stop);
  }
}

void EmbedEngine::loop() {
  for (;;) {
    std::vector<Item> batch = nextBatch();
    if (batch.empty())
      break;
    run(batch);
    if (deathCause())
      break;
  }
}

} // namespace tessera
