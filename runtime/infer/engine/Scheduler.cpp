// Which sequences run, and the pages and states that they have.
#include "runtime/infer/engine/Scheduler.h"
#include "runtime/infer/engine/ScheduledSequence.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace tessera {

Scheduler::Scheduler(PagedModel &model, const SchedulerOptions &options)
    : model(model), options(options),
      pool(model.shape().pages, model.shape().page) {
  int64_t most = model.shape().buckets.back();
  if (options.maxBatch < 1 || options.maxBatch > most)
    this->options.maxBatch = most;
  if (options.choices < 1 || options.choices > model.shape().vocab)
    this->options.choices = model.shape().vocab;
  if (const int64_t states = model.shape().states) {
    this->options.maxBatch = std::min(this->options.maxBatch, states);
    this->options.drafts = 0; // a state cannot return from a refused draft
    unusedStates.resize(size_t(states));
    std::iota(unusedStates.rbegin(), unusedStates.rend(), 0);
  }
  if (options.draft && this->options.drafts > 0)
    drafts.emplace(*options.draft, this->options.choices, model.shape().buckets,
                   options.now);
}

Scheduler::~Scheduler() = default;

void Scheduler::add(uint64_t id, EngineRequest request,
                    EngineClock::time_point arrived) {
  shares.arrive(request.tenant);
  waiting.push_back(std::make_unique<Sequence>(id, std::move(request), arrived,
                                               drafts ? 0 : options.drafts));
}

int64_t Scheduler::unfinishedTokens() const {
  int64_t tokens = 0;
  auto add = [&](const auto &sequences) {
    for (const auto &sequence : sequences)
      tokens += sequence->result.promptTokens + sequence->request.maxTokens;
  };
  add(running);
  add(waiting);
  return tokens;
}

//===--- ends -------------------------------------------------------------===//

void Scheduler::releaseMemory(Sequence &sequence) {
  pool.release(sequence.list);
  if (drafts)
    drafts->release(sequence.drafted);
  if (sequence.state >= 0)
    unusedStates.push_back(std::exchange(sequence.state, -1));
}

void Scheduler::finish(Sequence &sequence, FinishReason reason,
                       const std::string &message) {
  auto now = EngineClock::now();
  releaseMemory(sequence);
  shares.leave(sequence.request.tenant);
  sequence.request.adapter
      .reset(); // its slot may be free before the sink knows
  sequence.noteRead();
  sequence.finished = true;
  sequence.result.reason = reason;
  sequence.result.message = message;
  sequence.result.times = {sequence.arrived, now, sequence.started,
                           sequence.first};
  ++counters.finished[size_t(reason)];
  counters.endToEnd.add(secondsOf(now - sequence.arrived));
  if (sequence.first)
    counters.decode.add(secondsOf(now - *sequence.first));
  sequence.request.sink->finished(sequence.result);
}

void Scheduler::sweep() {
  auto finished = [](const auto &sequence) { return sequence->finished; };
  std::erase_if(running, finished);
  std::erase_if(waiting, finished);
}

void Scheduler::cancel(uint64_t id) {
  auto end = [&](auto &sequences) {
    for (auto &sequence : sequences)
      if (sequence->id == id)
        finish(*sequence, FinishReason::cancelled);
  };
  end(running);
  end(waiting);
  sweep();
}

void Scheduler::finishAll(FinishReason reason, const std::string &message) {
  for (auto &sequence : running)
    finish(*sequence, reason, message);
  for (auto &sequence : waiting)
    finish(*sequence, reason, message);
  sweep();
}

void Scheduler::expire(EngineClock::time_point now) {
  auto end = [&](auto &sequences) {
    for (auto &sequence : sequences)
      if (sequence->request.deadline && *sequence->request.deadline <= now)
        finish(*sequence, FinishReason::deadline);
  };
  end(running);
  end(waiting);
  sweep();
}

//===--- pages ------------------------------------------------------------===//

bool Scheduler::givePages(Sequence &sequence) {
  std::span<const int32_t> tokens = sequence.tokens;
  // The last token is always computed for its logits, and so are tokens to
  // score.
  int64_t known =
      (sequence.scores() ? sequence.scored : int64_t(tokens.size())) - 1;
  if (!model.shape().reusesPrefixes())
    known = 0;
  int64_t found = pool.takePrefix(tokens.first(std::size_t(known)),
                                  sequence.list, sequence.root());
  // Keep a page for each running sequence, or one would be preempted at once.
  if (!pool.grow(sequence.list, int64_t(tokens.size())) ||
      (!running.empty() && pool.available() < int64_t(running.size()))) {
    pool.release(sequence.list);
    return false;
  }
  if (!unusedStates.empty()) {
    sequence.state = unusedStates.back();
    unusedStates.pop_back();
  }
  sequence.computed = found;
  return true;
}

std::deque<std::unique_ptr<ScheduledSequence>>::iterator
Scheduler::nextWaiting() {
  return std::ranges::min_element(waiting, {}, [&](const auto &each) {
    const bool isNew = !each->started;
    return std::tuple(each->request.priority, isNew,
                      isNew ? shares.served(each->request.tenant) : 0,
                      each->id);
  });
}

int64_t Scheduler::missingPages(const Sequence &sequence) const {
  const int64_t page = model.shape().page;
  const auto tokens = int64_t(sequence.tokens.size());
  int64_t found = 0;
  if (model.shape().reusesPrefixes())
    found = pool.findPrefix(
        std::span(sequence.tokens).first(size_t(tokens - 1)), sequence.root());
  return (tokens + page - 1) / page - found / page;
}

// One prompt at a time: a later prompt then finds a common prefix in the cache.
// Only a more urgent one does not wait for it. Nothing is preempted that
// does not help.
bool Scheduler::makeRoom(Sequence &sequence) {
  int64_t yielded = 0;
  for (const auto &each : running) {
    if (each->request.priority > sequence.request.priority)
      yielded += int64_t(each->list.pages.size());
    else if (each->unread() > 1 && model.shape().states == 0)
      return false;
  }
  if (pool.available() + yielded < missingPages(sequence))
    return false;
  auto yields = [&] {
    return !running.empty() &&
           running.back()->request.priority > sequence.request.priority;
  };
  while (int64_t(running.size()) >= options.maxBatch) {
    if (!yields())
      return false;
    preemptLast();
  }
  while (!givePages(sequence)) {
    if (!yields())
      return false;
    preemptLast();
  }
  return true;
}

void Scheduler::start(Sequence &sequence, EngineClock::time_point now) {
  if (sequence.started)
    return; // what is recomputed was charged before
  const uint64_t tenant = sequence.request.tenant;
  shares.admit(tenant);
  shares.charge(tenant, kPromptCost * double(sequence.toRead()));
  sequence.started = now;
  sequence.result.cachedTokens = sequence.computed;
  counters.queue.add(secondsOf(now - sequence.arrived));
  counters.promptTokens += sequence.result.promptTokens;
  counters.prefixQueries += sequence.result.promptTokens;
  counters.prefixHits += sequence.computed;
}

void Scheduler::admit(EngineClock::time_point now) {
  while (!waiting.empty()) {
    const auto next = nextWaiting();
    std::unique_ptr<Sequence> sequence = std::move(*next);
    waiting.erase(next);
    if (!makeRoom(*sequence)) {
      waiting.push_front(std::move(sequence));
      return;
    }
    start(*sequence, now);
    if (sequence->toRead() == 0) { // its prompt is in the prefix cache
      finish(*sequence, FinishReason::length);
      continue;
    }
    auto position = std::ranges::upper_bound(
        running, sequence, [](const auto &one, const auto &other) {
          return one->precedes(*other);
        });
    running.insert(position, std::move(sequence));
  }
}

void Scheduler::preemptLast() {
  std::unique_ptr<Sequence> sequence = std::move(running.back());
  running.pop_back();
  releaseMemory(*sequence);
  sequence->noteRead();
  sequence->computed = 0;
  ++counters.preemptions;
  waiting.push_front(std::move(sequence));
}

const EngineMetrics &Scheduler::metrics() {
  counters.running = int64_t(running.size());
  counters.waiting = int64_t(waiting.size());
  counters.pages = pool.size();
  counters.pagesUsed = pool.size() - pool.available();
  counters.pagesKept = pool.kept();
  return counters;
}

} // namespace tessera
