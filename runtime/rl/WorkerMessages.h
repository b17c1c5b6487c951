// What a learner and its rollout workers say to each other, over a stream
// socket: frames of a kind, a size and a payload, in the byte order of both.
//
//   learner: job                        to a worker on another machine
//   worker:  hello                      what it samples with
//   learner: weights, request, …        in the order in which they count
//   worker:  updated                    it has those weights
//            samples or failure         of each request, as they are ready
//            alive                      now and then
//   learner: end                        the last one
//
// A peer that closes its end has ended. Whatever arrives is checked before it
// is used: a damaged message is an error, never a large allocation.
#pragma once
#include "runtime/comm/tcp/TcpSocket.h"
#include "runtime/rl/Sampler.h"

#include <mutex>

namespace tessera::rl {

enum class MessageKind : uint32_t {
  hello,
  weights,
  request,
  samples,
  failure,
  job,
  updated,
  alive,
  end,
};

struct Message {
  MessageKind kind;
  std::vector<std::byte> payload;
};

/// What a worker on another machine compiles the model that samples from.
struct WorkerJob {
  std::string config; ///< config.json of the model
  std::string recipe; ///< YAML; empty: the defaults
  std::vector<std::string> set;
  int64_t longestPrompt = 0; ///< in tokens
  bool operator==(const WorkerJob &) const = default;
};
/// Of a worker, once.
struct Hello {
  int64_t context = 0;
  int64_t sequences = 1; ///< that it samples at once
  std::vector<StateTensor> parameters;
};
/// The beginning of a `weights` payload. The bytes of the named parameters
/// follow, one after the other.
struct WeightsHeader {
  uint32_t version = 0;
  std::vector<uint32_t> parameters; ///< indices into Hello::parameters
};
struct NumberedRequest {
  uint64_t id = 0;
  SampleRequest request;
};
struct NumberedSamples {
  uint64_t id = 0;
  std::vector<Sample> samples;
};
struct NumberedFailure {
  uint64_t id = 0;
  std::string text;
};

/// The weights of a version are in use.
struct Updated {
  uint32_t version = 0;
};
/// The worker is not needed any more, or why it cannot be used.
struct End {
  std::string refusal; ///< empty: the run is over
};

Message pack(const WorkerJob &job);
Message pack(const Hello &hello);
Message pack(const WeightsHeader &header);
Message pack(const NumberedRequest &request);
Message pack(const NumberedSamples &samples);
Message pack(const NumberedFailure &failure);
Message pack(const Updated &updated);
Message pack(const End &end);

StatusOr<WorkerJob> unpackJob(std::span<const std::byte> payload);
StatusOr<Hello> unpackHello(std::span<const std::byte> payload);
/// `rest` receives the bytes after the header.
StatusOr<WeightsHeader> unpackWeights(std::span<const std::byte> payload,
                                      std::span<const std::byte> &rest);
StatusOr<NumberedRequest> unpackRequest(std::span<const std::byte> payload);
StatusOr<NumberedSamples> unpackSamples(std::span<const std::byte> payload);
StatusOr<NumberedFailure> unpackFailure(std::span<const std::byte> payload);
StatusOr<Updated> unpackUpdated(std::span<const std::byte> payload);
StatusOr<End> unpackEnd(std::span<const std::byte> payload);

/// One end. Any threads may send while one receives.
class Connection {
public:
  explicit Connection(comm::Socket socket) : socket(std::move(socket)) {}

  /// receive() fails if nothing arrives for so long.
  void limitSilence(std::chrono::milliseconds limit);
  /// Sends the message, with more bytes at the end of its payload; waits as
  /// long as the peer does not read. An error if the peer has gone.
  Status send(const Message &message,
              std::span<const std::span<const std::byte>> more = {});
  /// The next message of at most `most` bytes; nothing if the peer has closed
  /// its end, also within a message, or cannot be reached.
  StatusOr<std::optional<Message>> receive(uint64_t most);
  /// Of a peer that sends nothing more, for a message that begins with its
  /// name.
  std::string_view ending() const {
    return isUnreachable ? "cannot be reached any more" : "closed its end";
  }
  /// Both ends see the end of the stream; from any thread.
  void shutDown();
  /// The other end does, once it has read what was sent.
  void finishSending();

private:
  StatusOr<bool> receiveAll(std::span<std::byte> out);

  comm::Socket socket;
  std::mutex sending;
  std::chrono::milliseconds silence{0};
  bool isUnreachable = false;
};

} // namespace tessera::rl
