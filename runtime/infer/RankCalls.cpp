#include "runtime/infer/RankCalls.h"

#include <algorithm>

namespace tessera {
namespace {

using comm::Collective;
using comm::ElementType;

enum Kind : int32_t { heartbeat, prefilled, decoded, ended };

/// A message is the kind, its length in words, the number of sequences and of
/// tokens; then length, adapter, state and number of pages of each sequence,
/// all pages, all tokens.
constexpr size_t kHeaderWords = 4, kSequenceWords = 4;
constexpr size_t kFirstWords = CallBroadcaster::kFirstWords;
/// Far more than any call has: 4,096 sequences of 2^24 tokens in pages of 64.
constexpr int64_t kMostWords = int64_t(1) << 30;

void write(std::vector<int32_t> &words, Kind kind,
           std::span<const CachedText> sequences,
           std::span<const int32_t> tokens) {
  words.assign({kind, 0, int32_t(sequences.size()), int32_t(tokens.size())});
  for (const CachedText &each : sequences)
    words.insert(words.end(), {int32_t(each.length), each.adapter, each.state,
                               int32_t(each.pages.size())});
  for (const CachedText &each : sequences)
    words.insert(words.end(), each.pages.begin(), each.pages.end());
  words.insert(words.end(), tokens.begin(), tokens.end());
  words[1] = int32_t(words.size());
}

/// A received call; views into its words.
struct Call {
  Kind kind;
  std::vector<CachedText> sequences;
  std::span<const int32_t> tokens;
};

Status malformed() {
  return Status::error("rank 0 sent a call that this rank cannot read; start "
                       "the same version on all ranks");
}

StatusOr<Call> read(std::span<const int32_t> words) {
  Call call{Kind(words[0]), {}, {}};
  const auto sequences = size_t(uint32_t(words[2])),
             tokens = size_t(uint32_t(words[3]));
  size_t at = kHeaderWords + sequences * kSequenceWords;
  if (words[0] < heartbeat || words[0] > ended || at > words.size())
    return malformed();
  for (size_t i = 0; i < sequences; ++i) {
    auto fields = words.subspan(kHeaderWords + i * kSequenceWords);
    const auto pages = size_t(uint32_t(fields[3]));
    if (pages > words.size() - at)
      return malformed();
    call.sequences.push_back(
        {words.subspan(at, pages), fields[0], fields[1], fields[2]});
    at += pages;
  }
  if (tokens != words.size() - at)
    return malformed();
  call.tokens = words.subspan(at);
  return call;
}

Status receive(comm::Channel &everybody, std::vector<int32_t> &words) {
  words.resize(kFirstWords);
  TESSERA_RETURN_IF_ERROR(everybody.run(
      Collective::broadcast(ElementType::i32, words.data(), kFirstWords, 0)));
  const int64_t count = words[1];
  if (count < int64_t(kHeaderWords) || count > kMostWords)
    return malformed();
  words.resize(size_t(count));
  if (words.size() <= kFirstWords)
    return Status::success();
  return everybody.run(Collective::broadcast(ElementType::i32,
                                             words.data() + kFirstWords,
                                             words.size() - kFirstWords, 0));
}

} // namespace

//===--- rank 0 -----------------------------------------------------------===//

CallBroadcaster::CallBroadcaster(comm::Channel &everybody,
                                 std::chrono::milliseconds interval)
    : everybody(everybody), interval(interval),
      lastSent(std::chrono::steady_clock::now()),
      heartbeats(
          [this](const std::stop_token &stop) { sendHeartbeats(stop); }) {}

CallBroadcaster::~CallBroadcaster() { (void)end(); }

Status CallBroadcaster::send() {
  const size_t count = words.size();
  words.resize(std::max(count, kFirstWords));
  lastSent = std::chrono::steady_clock::now();
  TESSERA_RETURN_IF_ERROR(everybody.run(
      Collective::broadcast(ElementType::i32, words.data(), kFirstWords, 0)));
  if (count <= kFirstWords)
    return Status::success();
  return everybody.run(Collective::broadcast(
      ElementType::i32, words.data() + kFirstWords, count - kFirstWords, 0));
}

// Followers that left would be waited for until the timeout.
Status CallBroadcaster::checkOpen() const {
  return hasEnded ? Status::error("rank 0 has ended its calls on this mesh")
                  : Status::success();
}

// An error ends the world, and the next call finds it.
void CallBroadcaster::sendHeartbeats(const std::stop_token &stop) {
  std::unique_lock lock(mutex);
  bool isSent = true;
  while (isSent && !hasEnded) {
    const auto due = lastSent + interval;
    wake.wait_until(lock, stop, due, [&] { return hasEnded; });
    if (stop.stop_requested() || hasEnded)
      return;
    if (std::chrono::steady_clock::now() < lastSent + interval)
      continue;
    write(words, heartbeat, {}, {});
    isSent = send().ok();
  }
}

// What this rank refuses is not sent: followers would wait for its shard.
Status CallBroadcaster::prefill(PagedModel &own, const CachedText &text,
                                std::span<const int32_t> tokens,
                                const Wanted &wanted) {
  TESSERA_RETURN_IF_ERROR(own.checkPrefill(text, tokens, wanted));
  std::lock_guard lock(mutex);
  TESSERA_RETURN_IF_ERROR(checkOpen());
  write(words, prefilled, std::span(&text, 1), tokens);
  TESSERA_RETURN_IF_ERROR(send());
  return own.prefill(text, tokens, wanted);
}

Status CallBroadcaster::decode(PagedModel &own,
                               std::span<const CachedText> sequences,
                               std::span<const int32_t> tokens,
                               const Wanted &wanted) {
  TESSERA_RETURN_IF_ERROR(own.checkDecode(sequences, tokens, wanted));
  std::lock_guard lock(mutex);
  TESSERA_RETURN_IF_ERROR(checkOpen());
  write(words, decoded, sequences, tokens);
  TESSERA_RETURN_IF_ERROR(send());
  return own.decode(sequences, tokens, wanted);
}

Status CallBroadcaster::end() {
  std::lock_guard lock(mutex);
  if (hasEnded)
    return Status::success();
  hasEnded = true;
  wake.notify_all();
  write(words, ended, {}, {});
  return send();
}

//===--- followers --------------------------------------------------------===//

Status followCalls(PagedModel &own, comm::Channel &everybody) {
  const Wanted nothing{.logits = false, .samplings = {}};
  std::vector<int32_t> words;
  while (true) {
    TESSERA_RETURN_IF_ERROR(receive(everybody, words));
    StatusOr<Call> call = read(words);
    if (!call.ok())
      return call.status();
    if (call->kind == ended)
      return Status::success();
    if (call->kind == heartbeat)
      continue;
    if (call->kind == prefilled && call->sequences.size() != 1)
      return malformed();
    TESSERA_RETURN_IF_ERROR(
        call->kind == prefilled
            ? own.prefill(call->sequences.front(), call->tokens, nothing)
            : own.decode(call->sequences, call->tokens, nothing));
  }
}

} // namespace tessera
