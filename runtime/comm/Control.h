// Short control messages between ranks: where another rank is, the answers, and
// that the world ends.
#pragma once
#include "runtime/comm/Transport.h"

#include <list>
#include <string_view>
#include <utility>

namespace tessera::comm {

/// What a question asks for: how many of these the asked rank has entered.
enum class Counter : std::uint8_t {
  collectives, ///< of the channel
  sends,       ///< exchanges of the channel that send to the asker
  receives,    ///< that receive from the asker
};

/// Sent as these bytes.
struct ControlMessage {
  enum class Kind : std::uint8_t { question, answer, end };
  static constexpr std::uint32_t kMagic = 0x74'63'73'74;

  std::uint32_t magic = kMagic;
  std::int32_t channel = 0;
  std::uint64_t entered = 0; ///< answer: so many
  Kind kind = Kind::question;
  Counter counter = Counter::collectives; ///< question, answer
  std::uint8_t isWaiting = 0;             ///< answer: for another rank
  std::uint8_t unused[5] = {};
  char line[1024] = {}; ///< answer: what it does; end: why. Ends in a zero.

  void setLine(std::string_view text);
  std::string_view text() const;
};

/// Sends and receives them. Ignores errors, since the collectives meet and
/// report the same errors.
class ControlLine {
public:
  explicit ControlLine(Transport &transport) : transport(transport) {}
  ~ControlLine();
  ControlLine(const ControlLine &) = delete;
  ControlLine &operator=(const ControlLine &) = delete;

  /// Cancels all pending messages; must be called before the transport ends.
  void close();
  void send(int rank, const ControlMessage &message);
  /// Makes progress. Returns the next complete message and its sender, if any.
  std::optional<std::pair<int, ControlMessage>> poll();
  /// Whether all sends have completed.
  bool isQuiet() const { return outgoing.empty(); }

private:
  struct Message {
    Request request = 0;
    int rank = 0;
    ControlMessage content;
  };
  Transport &transport;
  std::list<Message> outgoing, incoming; // lists: bytes must not move
};

} // namespace tessera::comm
