// How models write calls of tools into their text, and how that is read again
// while it comes. Which way a model was taught stands in its chat template.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::serve {

/// A call is a JSON object with a "name" and its arguments.
struct ToolFormat {
  std::string_view name;      ///< for people
  std::string_view open;      ///< stands before a call, or a list of them
  std::string_view close;     ///< behind it; none: calls end with the text
  std::string_view arguments; ///< the member that has them
  bool isList = false;        ///< calls stand in brackets
  bool mayBeBare = false;     ///< a text that begins with '{' is a call, too
};

/// What a chat template teaches; null if it has no tools, or writes their calls
/// in a way that is not known here.
const ToolFormat *toolFormatOf(std::string_view chatTemplate);

/// What is new of a call.
struct CallPiece {
  std::size_t index = 0;
  std::string id, name; ///< in its first piece, and only there
  std::string arguments;
};

struct ToolPieces {
  std::string content; ///< what is no call
  std::vector<CallPiece> calls;
};

/// Reads one text, which may come in pieces of any size: they change nothing
/// but when something is known. What begins as a call and is none is content.
class ToolCallReader {
public:
  /// The format must outlive it. A call of anything but `names` is content;
  /// none: any name will do. `onlyOne`: of what stands behind the first call
  /// nothing is told.
  explicit ToolCallReader(const ToolFormat &format,
                          std::vector<std::string> names = {},
                          bool onlyOne = false)
      : format(&format), names(std::move(names)), onlyOne(onlyOne) {}
  ToolPieces push(std::string_view text);
  /// What was held back because a call could have begun there.
  ToolPieces finish();
  std::size_t calls() const { return count; }

private:
  enum class Place : uint8_t { content, between, key, colon, value, behind };
  void take(char byte, ToolPieces &out);
  void takeContent(char byte, ToolPieces &out);
  void takeBetween(char byte, ToolPieces &out);
  void takeKey(char byte, ToolPieces &out);
  void takeValue(char byte, ToolPieces &out);
  void takeBehind(char byte, ToolPieces &out);
  void addToValue(char byte, ToolPieces &out);
  void endValue(ToolPieces &out);
  void endCall(ToolPieces &out);
  void beginCall();
  void giveUp(ToolPieces &out);
  void emitContent(std::string_view text, ToolPieces &out);
  void sendCall(std::string arguments, ToolPieces &out);
  bool isNamed() const { return !callName.empty(); }

  const ToolFormat *format;
  std::vector<std::string> names;
  bool onlyOne = false, isOver = false;
  Place place = Place::content;
  bool hasContent = false; ///< something but spaces came since a call
  std::string held;        ///< spaces, and what may be the beginning of a tag
  std::string raw;         ///< since the tag, until something of it is sent
  std::size_t count = 0;   ///< of calls that were sent

  // Of the call that is read.
  std::string key, value, callName, waiting;
  bool inString = false, escaped = false, isStreamed = false;
  bool hasArguments = false, isWhole = false; ///< the value
  bool isSent = false; ///< with its name and the beginning of its arguments
  std::size_t depth = 0;
};

} // namespace tessera::serve
