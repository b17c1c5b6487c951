// The response format of gpt-oss, named harmony (OpenAI 2025): an output is a
// list of messages, each with a header that names its channel. A reader that
// turns them into reasoning, content and tool calls.
#pragma once
#include "runtime/serve/ToolCalls.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::serve {

/// Whether a chat template writes the format.
bool hasChannels(std::string_view chatTemplate);

/// The special tokens of the format, and those that end an output.
std::span<const std::string_view> channelTags();
std::span<const std::string_view> channelStops();

/// The headers of a call, and of content, with what precedes them.
std::string callHeader(std::string_view function);
inline constexpr std::string_view kFinalHeader = "<|channel|>final<|message|>";

/// The header that a prompt has begun, of the assistant's next message; empty:
/// it has begun none.
std::string_view openHeader(std::string_view prompt);

struct ChannelPieces {
  std::string reasoning, content;
  std::vector<CallPiece> calls;
};

/// Reads one output, in pieces of any size, which only affect when a result is
/// known. Messages of the channel analysis are reasoning, messages to a
/// function are calls, and others are content, as is text without a header. A
/// line end is between two messages of one kind.
class ChannelReader {
public:
  /// Messages to functions that are not in `names` are content. `onlyOne`:
  /// ignores everything after the first call. `opened` precedes the output.
  ChannelReader(std::vector<std::string> names, bool onlyOne,
                std::string_view opened = "");
  ChannelPieces push(std::string_view text);
  /// Returns what was held back because a tag could have begun there.
  ChannelPieces finish();
  std::size_t calls() const { return count; }

  enum class Part : uint8_t { header, reasoning, other };
  /// What the next text is of.
  Part part() const;

private:
  enum class Kind : uint8_t { reasoning, content, call };
  bool takeHeader(ChannelPieces &out);
  bool takeBody(ChannelPieces &out);
  void begin(std::string_view header, ChannelPieces &out);
  void emit(std::string_view text, ChannelPieces &out);
  bool isOver() const { return onlyOne && count > 0 && inHeader; }

  std::vector<std::string> names;
  bool onlyOne;
  bool inHeader = true;
  Kind kind = Kind::content;      ///< of the message
  bool hasReasoning = false;      ///< some was returned
  bool hasContent = false;        ///< the same
  bool isJoined = false;          ///< the message follows another of its kind
  bool hasArguments = false;      ///< of the current call
  std::size_t count = 0;          ///< calls
  std::string held;               ///< a header, or a possible prefix of a tag
  std::vector<CallPiece> pending; ///< a call that `opened` begins
};

} // namespace tessera::serve
