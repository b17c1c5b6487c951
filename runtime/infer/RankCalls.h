// One model on several ranks. Rank 0 decides what is computed and broadcasts
// each call to the followers, which make it on their shards. A message has
// block tables, lengths and tokens, mostly less than a KiB; sampling is rank
// 0's alone.
#pragma once
#include "runtime/comm/Channel.h"
#include "runtime/infer/PagedModel.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera {

/// Broadcasts rank 0's calls to followCalls() of the followers. If there is no
/// call for `interval`, it broadcasts a heartbeat, so that rank 0 does not
/// count as missing while followers wait, and a missing follower is noticed.
class CallBroadcaster {
public:
  /// The i32 that are broadcast first, whatever the length of a message; the
  /// rest follows.
  static constexpr size_t kFirstWords = 256;

  /// Nothing else may use the channel, which is of all ranks. `interval` is
  /// less than half of the world's timeout.
  CallBroadcaster(comm::Channel &everybody, std::chrono::milliseconds interval);
  /// As end(), whose error the world reports.
  ~CallBroadcaster();

  /// Broadcasts the call and makes it here, with no other message in between.
  Status prefill(PagedModel &own, const CachedText &text,
                 std::span<const int32_t> tokens, const Wanted &wanted);
  Status decode(PagedModel &own, std::span<const CachedText> sequences,
                std::span<const int32_t> tokens, const Wanted &wanted);
  /// The followers return from followCalls(), and further calls are errors. To
  /// end twice does nothing.
  Status end();

private:
  Status send();            ///< `words`; the mutex is locked
  Status checkOpen() const; ///< the mutex is locked
  void sendHeartbeats(const std::stop_token &stop);

  comm::Channel &everybody;
  const std::chrono::milliseconds interval;
  std::mutex mutex; ///< guards the members below, and the channel
  std::condition_variable_any wake;
  std::chrono::steady_clock::time_point lastSent;
  bool hasEnded = false;
  std::vector<int32_t> words; ///< of the message
  std::jthread heartbeats;    // the last member: it uses the others
};

/// The model as rank 0 uses it: its shard, and with each call the followers'.
class ShardedModel final : public PagedModel {
public:
  /// `calls` must outlive the model.
  ShardedModel(std::unique_ptr<PagedModel> own, CallBroadcaster &calls)
      : own(std::move(own)), calls(calls) {}
  const DecoderShape &shape() const override { return own->shape(); }
  Status checkPrefill(const CachedText &text, std::span<const int32_t> tokens,
                      const Wanted &wanted) const override {
    return own->checkPrefill(text, tokens, wanted);
  }
  Status checkDecode(std::span<const CachedText> sequences,
                     std::span<const int32_t> tokens,
                     const Wanted &wanted) const override {
    return own->checkDecode(sequences, tokens, wanted);
  }
  Status prefill(const CachedText &text, std::span<const int32_t> tokens,
                 const Wanted &wanted) override {
    return calls.prefill(*own, text, tokens, wanted);
  }
  Status decode(std::span<const CachedText> sequences,
                std::span<const int32_t> tokens,
                const Wanted &wanted) override {
    return calls.decode(*own, sequences, tokens, wanted);
  }
  std::span<const float> logits(int64_t row) const override {
    return own->logits(row);
  }
  std::optional<float> logSum(int64_t row) const override {
    return own->logSum(row);
  }
  int32_t token(int64_t row) const override { return own->token(row); }

private:
  std::unique_ptr<PagedModel> own;
  CallBroadcaster &calls;
};

/// Makes rank 0's calls on this rank's shard, `own`, until rank 0 ends them.
Status followCalls(PagedModel &own, comm::Channel &everybody);

} // namespace tessera
