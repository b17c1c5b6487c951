// What a learner and its rollout workers say to each other, over a stream
// socket: frames of a kind, a size and a payload, in the byte order of both.
//
//   worker:  hello                      what it samples with
//   learner: weights, request, …        in the order in which they count
//   worker:  samples or failure         of each request, as they are ready
//
// A peer that closes its end has ended. Whatever arrives is checked before it
// is used: a damaged message is an error, never a large allocation.
#pragma once
#include "runtime/comm/tcp/TcpConnect.h"
#include "runtime/rl/Sampler.h"

namespace tessera::rl {

enum class MessageKind : uint32_t { hello, weights, request, samples, failure };

struct Message {
  MessageKind kind;
  std::vector<std::byte> payload;
};

/// Of a worker, once.
struct Hello {
  int64_t context = 0;
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

Message pack(const Hello &hello);
Message pack(const WeightsHeader &header);
Message pack(const NumberedRequest &request);
Message pack(const NumberedSamples &samples);
Message pack(const NumberedFailure &failure);

StatusOr<Hello> unpackHello(std::span<const std::byte> payload);
/// `rest` receives the bytes after the header.
StatusOr<WeightsHeader> unpackWeights(std::span<const std::byte> payload,
                                      std::span<const std::byte> &rest);
StatusOr<NumberedRequest> unpackRequest(std::span<const std::byte> payload);
StatusOr<NumberedSamples> unpackSamples(std::span<const std::byte> payload);
StatusOr<NumberedFailure> unpackFailure(std::span<const std::byte> payload);

/// One end. One thread may send while another receives.
class Connection {
public:
  explicit Connection(comm::Socket socket) : socket(std::move(socket)) {}

  /// Sends the message, with more bytes at the end of its payload; waits as
  /// long as the peer does not read. An error if the peer has gone.
  Status send(const Message &message,
              std::span<const std::span<const std::byte>> more = {});
  /// The next message of at most `most` bytes; nothing if the peer has closed
  /// its end, also within a message.
  StatusOr<std::optional<Message>> receive(uint64_t most);
  /// Both ends see the end of the stream; from any thread.
  void shutDown();

private:
  comm::Socket socket;
};

} // namespace tessera::rl
