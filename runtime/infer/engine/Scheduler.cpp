#include "runtime/infer/engine/Scheduler.h"
#include "runtime/infer/engine/ScheduledSequence.h"

#include <algorithm>

namespace tessera {

static double seconds(EngineClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Scheduler::Scheduler(PagedModel &model, const SchedulerOptions &options)
    : model(model), options(options),
      pool(model.shape().pages, model.shape().page) {
  int64_t most = model.shape().buckets.back();
  if (options.maxBatch < 1 || options.maxBatch > most)
    this->options.maxBatch = most;
  if (options.choices < 1 || options.choices > model.shape().vocab)
    this->options.choices = model.shape().vocab;
}

Scheduler::~Scheduler() = default;

Status Scheduler::checkLength(int64_t prompt, int64_t tokens,
                              const DecoderShape &shape) {
  if (prompt <= shape.context && tokens <= shape.context - prompt)
    return Status::success();
  return Status::error("the prompt has {} tokens and {} are asked for, "
                       "together they must be at most the context of {}",
                       prompt, tokens, shape.context);
}

Status Scheduler::check(const EngineRequest &request,
                        const DecoderShape &shape) {
  if (request.prompt.empty())
    return Status::error("the prompt has no token");
  for (int32_t token : request.prompt)
    if (token < 0 || token >= shape.vocab)
      return Status::error("token {} of the prompt is outside the vocabulary "
                           "of {}",
                           token, shape.vocab);
  auto prompt = int64_t(request.prompt.size());
  if (request.maxTokens < 0)
    return Status::error("no fewer than 0 tokens can be asked for, got: {}",
                         request.maxTokens);
  TESSERA_RETURN_IF_ERROR(checkLength(prompt, request.maxTokens, shape));
  if (request.scoresPrompt && !request.logprobs)
    return Status::error("a prompt is scored by logprobs, which are not asked "
                         "for");
  int64_t pages = (prompt + request.maxTokens + shape.page - 1) / shape.page;
  if (pages > shape.pages)
    return Status::error("{} tokens need {} pages of {} tokens, the cache has "
                         "{}",
                         prompt + request.maxTokens, pages, shape.page,
                         shape.pages);
  return checkSampling(request.sampling);
}

void Scheduler::add(uint64_t id, EngineRequest request,
                    EngineClock::time_point arrived) {
  waiting.push_back(
      std::make_unique<Text>(id, std::move(request), arrived, options.drafts));
}

int64_t Scheduler::unfinishedTokens() const {
  int64_t tokens = 0;
  auto add = [&](const auto &sequences) {
    for (const auto &text : sequences)
      tokens += text->result.promptTokens + text->request.maxTokens;
  };
  add(running);
  add(waiting);
  return tokens;
}

//===--- ends -------------------------------------------------------------===//

void Scheduler::finish(Text &text, FinishReason reason,
                       const std::string &message) {
  auto now = EngineClock::now();
  pool.release(text.list);
  text.noteRead();
  text.finished = true;
  text.result.reason = reason;
  text.result.message = message;
  ++counters.finished[size_t(reason)];
  counters.endToEnd.add(seconds(now - text.arrived));
  if (text.first)
    counters.decode.add(seconds(now - *text.first));
  text.request.sink->finished(text.result);
}

void Scheduler::sweep() {
  auto finished = [](const auto &text) { return text->finished; };
  std::erase_if(running, finished);
  std::erase_if(waiting, finished);
}

void Scheduler::cancel(uint64_t id) {
  auto end = [&](auto &sequences) {
    for (auto &text : sequences)
      if (text->id == id)
        finish(*text, FinishReason::cancelled);
  };
  end(running);
  end(waiting);
  sweep();
}

void Scheduler::finishAll(FinishReason reason, const std::string &message) {
  for (auto &text : running)
    finish(*text, reason, message);
  for (auto &text : waiting)
    finish(*text, reason, message);
  sweep();
}

void Scheduler::expire(EngineClock::time_point now) {
  auto end = [&](auto &sequences) {
    for (auto &text : sequences)
      if (text->request.deadline && *text->request.deadline <= now)
        finish(*text, FinishReason::deadline);
  };
  end(running);
  end(waiting);
  sweep();
}

//===--- pages ------------------------------------------------------------===//

bool Scheduler::givePages(Text &text) {
  std::span<const int32_t> tokens = text.tokens;
  // The last token is always read, for its logits, and so is what is scored.
  int64_t known = (text.scores() ? text.scored : int64_t(tokens.size())) - 1;
  int64_t found = pool.takePrefix(tokens.first(std::size_t(known)), text.list);
  // A page for each of the others, or they would be preempted at once.
  if (!pool.grow(text.list, int64_t(tokens.size())) ||
      (!running.empty() && pool.available() < int64_t(running.size()))) {
    pool.release(text.list);
    return false;
  }
  text.computed = found;
  return true;
}

void Scheduler::admit(EngineClock::time_point now) {
  // One prompt at a time: whoever comes with the same beginning finds it read.
  auto isRead = [](const auto &text) { return text->unread() == 1; };
  while (!waiting.empty() && int64_t(running.size()) < options.maxBatch &&
         std::ranges::all_of(running, isRead)) {
    Text &text = *waiting.front();
    if (!givePages(text))
      return;
    if (!text.started) {
      text.started = now;
      text.result.cachedTokens = text.computed;
      counters.queue.add(seconds(now - text.arrived));
      counters.promptTokens += text.result.promptTokens;
      counters.prefixQueries += text.result.promptTokens;
      counters.prefixHits += text.computed;
    }
    if (text.toRead() == 0) { // others have read its prompt
      finish(text, FinishReason::length);
      waiting.pop_front();
      continue;
    }
    // A text that was preempted is older than some that run.
    auto place = std::ranges::upper_bound(
        running, text.id, {}, [](const auto &other) { return other->id; });
    running.insert(place, std::move(waiting.front()));
    waiting.pop_front();
  }
}

void Scheduler::preemptYoungest() {
  std::unique_ptr<Text> text = std::move(running.back());
  running.pop_back();
  pool.release(text->list);
  text->noteRead();
  text->computed = 0;
  ++counters.preemptions;
  // Younger than all that run, older than all that wait.
  waiting.push_front(std::move(text));
}

//===--- an iteration -----------------------------------------------------===//

Status Scheduler::step() {
  auto now = EngineClock::now();
  expire(now);
  admit(now);
  TESSERA_RETURN_IF_ERROR(readChunk());
  TESSERA_RETURN_IF_ERROR(decode());
  sweep();
  ++counters.iterations;
  return Status::success();
}

// One text of each kind: scoring goes row by row, and others do not wait for
// it.
Status Scheduler::readChunk() {
  for (bool scores : {false, true}) {
    auto found = std::ranges::find_if(running, [&](const auto &text) {
      return text->unread() > 1 && text->scores() == scores;
    });
    if (found == running.end())
      continue;
    Text &text = **found;
    TESSERA_RETURN_IF_ERROR(scores ? score(text) : prefill(text));
    if (!text.generates() && text.toRead() == 0)
      finish(text, FinishReason::length);
    sweep();
  }
  return Status::success();
}

Status Scheduler::prefill(Text &text) {
  int64_t count = std::min(text.toRead(), model.shape().chunk);
  bool last = count == text.unread();
  Text *one[] = {&text};
  text.drafts = {};
  TESSERA_RETURN_IF_ERROR(
      model.prefill({text.list.pages, text.computed},
                    std::span(text.tokens).subspan(text.computed, count),
                    last ? wantedOf(one) : Wanted{.logits = false}));
  text.computed += count;
  counters.lastComputed = EngineClock::now();
  pool.publish(text.list, std::span(text.tokens).first(text.computed));
  if (last)
    choose(text, 0);
  return Status::success();
}

Status Scheduler::score(Text &text) {
  int64_t begin = text.computed;
  int64_t count = std::min(text.toRead(), model.shape().buckets.back());
  bool last = count == text.unread();
  std::vector<CachedText> places;
  places.reserve(size_t(count));
  for (int64_t i = 0; i < count; ++i)
    places.push_back({text.list.pages, begin + i});
  TESSERA_RETURN_IF_ERROR(
      model.decode(places, std::span(text.tokens).subspan(begin, count), {}));
  text.isSampled = false;
  text.computed += count;
  counters.lastComputed = EngineClock::now();
  pool.publish(text.list, std::span(text.tokens).first(text.computed));
  for (int64_t row = 0; row < count && text.scores(); ++row) {
    int64_t place = begin + row + 1; // of what comes behind the row's token
    if (place != text.scored)
      continue; // told before it was preempted
    TokenEvent event;
    event.token = text.tokens[std::size_t(place)];
    event.logprobs = logprobsOf(model.logits(row).first(options.choices),
                                event.token, *text.request.logprobs);
    text.request.sink->scored(std::size_t(place), event);
    ++text.scored;
  }
  if (last)
    choose(text, count - 1);
  return Status::success();
}

std::vector<Scheduler::Text *> Scheduler::decodable() {
  std::vector<Text *> sequences;
  for (size_t i = 0; i < running.size(); ++i) {
    Text &text = *running[i];
    if (text.unread() > 1)
      continue;
    while (i < running.size() &&
           !pool.grow(text.list, int64_t(text.tokens.size())))
      preemptYoungest(); // perhaps this one
    if (i < running.size())
      sequences.push_back(&text);
  }
  return sequences;
}

// Drafts never take pages or rows that another text needs now.
void Scheduler::addDrafts(std::span<Text *const> sequences) {
  int64_t rows = model.shape().buckets.back() - int64_t(sequences.size());
  auto left = int64_t(sequences.size());
  for (Text *text : sequences) {
    // What is left is shared among those that come; of a draft token that holds
    // another token follows, which maxTokens must allow.
    int64_t room =
        std::min((rows + left - 1) / left,
                 text->request.maxTokens - text->result.generatedTokens - 1);
    --left;
    text->drafts = text->draft.propose(text->tokens, room);
    auto count = int64_t(text->drafts.size());
    if (!pool.grow(text->list, int64_t(text->tokens.size()) + count))
      text->drafts = {};
    rows -= int64_t(text->drafts.size());
  }
}

/// Chooses after row `row` of the text's; whether the next row holds.
bool Scheduler::takeRow(Text &text, int64_t row) {
  ++text.computed;
  pool.publish(text.list, text.tokens);
  choose(text, row);
  return !text.finished;
}

// What cannot be requested is drawn by logits: those of all sequences are read
// then, since an output is read as a whole.
Wanted Scheduler::wantedOf(std::span<Text *const> sequences) {
  samplings.clear();
  bool isAny = false, needsLogits = false;
  for (Text *text : sequences) {
    size_t before = samplings.size();
    text->isSampled =
        text->addSamplings(model.shape().changes, options.choices, samplings);
    isAny |= text->isSampled;
    needsLogits |= !text->isSampled || text->request.logprobs.has_value();
    samplings.resize(before + text->drafts.size() + 1,
                     TokenSampling{.choices = options.choices});
  }
  return {.logits = needsLogits,
          .samplings = isAny ? std::span<const TokenSampling>(samplings)
                             : std::span<const TokenSampling>()};
}

Status Scheduler::decode() {
  std::vector<Text *> sequences = decodable();
  if (sequences.empty())
    return Status::success();
  addDrafts(sequences);
  std::vector<CachedText> places;
  std::vector<int32_t> tokens;
  for (const Text *text : sequences) {
    places.push_back({text->list.pages, text->computed});
    tokens.push_back(text->tokens.back());
    for (int32_t drafted : text->drafts) {
      places.push_back({text->list.pages, places.back().length + 1});
      tokens.push_back(drafted);
    }
  }
  TESSERA_RETURN_IF_ERROR(model.decode(places, tokens, wantedOf(sequences)));
  counters.lastComputed = EngineClock::now();
  int64_t row = 0;
  for (Text *text : sequences) {
    int64_t first = row, held = 0;
    auto count = int64_t(text->drafts.size());
    row += count + 1;
    while (takeRow(*text, first + held) && held < count &&
           text->tokens.back() == text->drafts[size_t(held)])
      ++held;
    counters.draftTokens += uint64_t(count);
    counters.acceptedTokens += uint64_t(held);
    if (count > 0)
      text->draft.outcome(held);
  }
  return Status::success();
}

// The one place where a text gets a token.
void Scheduler::choose(Text &text, int64_t row) {
  if (text.hasItsForm()) // which is no text at all
    return finish(text, FinishReason::stop);
  FinishReason failure;
  StatusOr<int32_t> token = text.draw(model, row, options.choices, failure);
  if (!token.ok())
    return finish(text, failure, token.message());
  auto now = EngineClock::now();
  if (!text.first) {
    text.first = now;
    counters.firstToken.add(seconds(now - text.arrived));
    counters.prefill.add(seconds(now - *text.started));
  } else {
    counters.interToken.add(seconds(now - *text.last));
  }
  text.last = now;
  ++counters.generatedTokens;
  ++text.result.generatedTokens;
  TokenEvent event;
  event.token = *token;
  event.isStop = text.stopsAt(*token);
  if (text.request.logprobs)
    event.logprobs =
        logprobsOf(model.logits(row).first(size_t(options.choices)), *token,
                   *text.request.logprobs);
  bool more = text.request.sink->token(event);
  if (!more || event.isStop || text.hasItsForm())
    return finish(text, FinishReason::stop);
  if (text.result.generatedTokens == text.request.maxTokens)
    finish(text, FinishReason::length);
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
