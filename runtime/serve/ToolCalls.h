// The formats in which models write tool calls, and a parser that reads them
// from a stream. A model's chat template shows its format.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::serve {

/// Calls are JSON objects with a name and arguments.
struct ObjectCalls {
  std::string_view nameKey = "name", arguments = "arguments"; ///< members
  std::string_view listOpen = ""; ///< calls are in brackets: "[", or " ["
  bool mayBeBare = false; ///< output that begins with '{' is a call, too
};

/// Calls are names that a separator and a JSON object of arguments follow.
struct NamedCalls {
  std::string_view separator;
  /// Around all calls.
  std::string_view section = "", sectionClose = "";
  std::string_view again = "";      ///< white space between two calls
  std::string_view lastSpace = "";  ///< white space before the closing tag
  std::string_view namePrefix = ""; ///< "functions.", which may be absent
  /// Where a name ends before the separator: "[CALL_ID]", or ":" and the call's
  /// number.
  std::string_view nameEnd = "";
};

/// Arguments are written one by one: what is around the parts of a call, which
/// is between the format's tags. White space may be between them.
struct ArgumentTags {
  std::string_view open;    ///< before the name
  std::string_view nameEnd; ///< empty: arguments or the end follow the name
  std::string_view key, keyEnd;
  std::string_view value, valueEnd;
  std::string_view close; ///< after the arguments
};

struct ToolFormat {
  std::string_view name; ///< for messages
  std::string_view open; ///< precedes a call, or a list of calls
  /// Follows it, after white space; empty: calls end with the output.
  std::string_view close = "";
  std::variant<ObjectCalls, NamedCalls, ArgumentTags> calls = ObjectCalls();

  // Null if calls are of another kind.
  constexpr const ObjectCalls *objects() const {
    return std::get_if<ObjectCalls>(&calls);
  }
  constexpr const NamedCalls *named() const {
    return std::get_if<NamedCalls>(&calls);
  }
  constexpr const ArgumentTags *tagged() const {
    return std::get_if<ArgumentTags>(&calls);
  }
  bool isList() const { return objects() && !objects()->listOpen.empty(); }
  /// What tokenizers have as special tokens: all <…> and […] in it.
  std::vector<std::string_view> tags() const;
};

/// The format of a chat template; null if it has no tools, or a format that is
/// not supported.
const ToolFormat *toolFormatOf(std::string_view chatTemplate);

/// A delta of a call.
struct CallPiece {
  std::size_t index = 0;
  std::string id, name; ///< only in its first delta
  std::string arguments;
};

struct ToolPieces {
  std::string content; ///< text outside of calls
  std::vector<CallPiece> calls;
};

/// Parses one output, in pieces of any size, which only affect when a result is
/// known. Text that begins like a call and is not one is content.
class CallReader {
public:
  virtual ~CallReader() = default;
  virtual ToolPieces push(std::string_view text) = 0;
  /// Returns what was held back because a call could have begun there.
  virtual ToolPieces finish() = 0;
  virtual std::size_t calls() const = 0;
};

/// Of calls whose arguments are a JSON object, which are returned as they come.
class ToolCallReader final : public CallReader {
public:
  /// The format must outlive it. A call of a function that is not in `names` is
  /// content; empty: any name is allowed. `onlyOne`: ignores everything after
  /// the first call.
  explicit ToolCallReader(const ToolFormat &format,
                          std::vector<std::string> names = {},
                          bool onlyOne = false)
      : format(&format), objects(format.objects()), named(format.named()),
        tag(std::string(named ? named->section : "") += format.open),
        names(std::move(names)), onlyOne(onlyOne) {}
  ToolPieces push(std::string_view text) override;
  ToolPieces finish() override;
  std::size_t calls() const override { return count; }

private:
  enum class Place : uint8_t {
    content,
    between,
    name,
    key,
    colon,
    value,
    after,
    section
  };
  void take(char byte, ToolPieces &out);
  void takeContent(char byte, ToolPieces &out);
  void takeBetween(char byte, ToolPieces &out);
  void takeName(char byte, ToolPieces &out);
  void takeKey(char byte, ToolPieces &out);
  void takeValue(char byte, ToolPieces &out);
  void takeAfter(char byte, ToolPieces &out);
  void takeSection(char byte, ToolPieces &out);
  void addToValue(char byte, ToolPieces &out);
  void endValue(ToolPieces &out);
  void endCall(ToolPieces &out);
  void beginCall();
  void giveUp(ToolPieces &out);
  void emitContent(std::string_view text, ToolPieces &out);
  void sendCall(std::string arguments, ToolPieces &out);
  bool isNamed() const { return !callName.empty(); }
  bool isOfArguments() const; ///< whether `key` is

  const ToolFormat *format;
  const ObjectCalls *objects; ///< of the format; null if it has names
  const NamedCalls *named;
  std::string tag; ///< precedes the first call
  std::vector<std::string> names;
  bool onlyOne = false, isOver = false;
  Place place = Place::content;
  bool hasContent = false; ///< other than white space since the last call
  std::string held;        ///< white space, and a possible prefix of a tag
  std::string raw;         ///< since the tag, until a part of it is sent
  std::size_t count = 0;   ///< calls that were sent

  // Of the current call.
  std::string key, value, callName, waiting;
  bool inString = false, escaped = false, isStreamed = false;
  bool hasArguments = false, isWhole = false; ///< the value
  bool isSent = false; ///< its name and the beginning of its arguments
  std::size_t depth = 0;
};

} // namespace tessera::serve
