// Bytes from one rank to another. What a collective does is decided above; a
// transport knows neither types nor groups.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tessera::comm {

/// A pending message, named by the transport that made it. Invalid once test()
/// was true or an error, and after cancel().
using Request = std::uint32_t;

/// Point-to-point messages between the ranks of a job; nothing here blocks.
/// One thread at a time. Between two ranks, messages of one tag arrive in the
/// order in which they were sent, in the order in which they are received.
class Transport {
public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Starts sending a message of any length to another rank. The bytes must
  /// stay until test() says that it has read them. 0 <= tag < 32768.
  virtual StatusOr<Request> send(int to, int tag,
                                 std::span<const std::byte> bytes) = 0;
  /// Expects a message of exactly this length from another rank.
  virtual StatusOr<Request> receive(int from, int tag,
                                    std::span<std::byte> bytes) = 0;
  /// Whether the message is complete. An error names the peer.
  virtual StatusOr<bool> test(Request request) = 0;
  /// Abandons a message whose end will not be waited for. A receive no longer
  /// writes; a sent message may arrive or not, and its bytes must stay until
  /// finish().
  virtual void cancel(Request request) = 0;
  /// A rank from which a message with this tag has arrived without a receive.
  virtual StatusOr<std::optional<int>> probe(int tag) = 0;

  /// An orderly end, called on all ranks, none of which has messages left.
  virtual Status finish() = 0;
  /// Ends the job: all ranks as far as the launcher reaches, and then this
  /// process with the exit code. Transports within one process do nothing.
  virtual void abort(int exitCode) = 0;
};

} // namespace tessera::comm
