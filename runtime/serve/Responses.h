// A response of /v1/responses, growing or stored: its items, its events, and
// its JSON. Events are derived from the items alone, so they can be replayed.
#pragma once
#include "runtime/serve/Choice.h"
#include "runtime/serve/HttpServer.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::serve {

struct Usage {
  int64_t prompt = 0, cached = 0, generated = 0;
  int64_t reasoning = 0; ///< of those generated
};

enum class OutputKind : uint8_t { message, call, reasoning };

struct OutputItem {
  OutputKind kind = OutputKind::message;
  std::string id;
  std::string callId, name;   ///< of a call
  std::string text;           ///< or a call's arguments
  std::vector<uint32_t> ends; ///< offsets at which its deltas end
  bool isCut = false;         ///< truncated by a limit or an error
};

enum class ResponseStatus : uint8_t {
  queued,
  inProgress,
  completed,
  incomplete,
  failed,
  cancelled,
};

struct ResponseRecord {
  std::string id;
  std::string constants = "{}"; ///< JSON of the constant members
  bool background = false;
  ResponseStatus status = ResponseStatus::inProgress;
  std::string error;     ///< why it failed
  bool isAtFault = true; ///< caused by the server, not the request
  std::vector<OutputItem> output;
  std::optional<Usage> usage;

  bool isFinished() const {
    return status != ResponseStatus::queued &&
           status != ResponseStatus::inProgress;
  }
  std::size_t bytes() const;
};

/// Calls `visit(kind, text, begun)` for the parts of a delta, in the order in
/// which the model wrote them. `begun`: the call that begins there, else null.
template <typename Visit>
void forEachPart(const Delta &delta, const Visit &visit) {
  const CallPiece *none = nullptr;
  if (!delta.reasoning.empty())
    visit(OutputKind::reasoning, delta.reasoning, none);
  // Arguments of the open call come before new content.
  auto isNew = [](const CallPiece &each) { return !each.name.empty(); };
  auto first = std::ranges::find_if(delta.calls, isNew);
  for (auto each = delta.calls.begin(); each != first; ++each)
    visit(OutputKind::call, each->arguments, none);
  if (!delta.text.empty())
    visit(OutputKind::message, delta.text, none);
  for (; first != delta.calls.end(); ++first)
    visit(OutputKind::call, first->arguments, isNew(*first) ? &*first : none);
}

/// The JSON object; with items only if it is finished.
std::string responseJson(const ResponseRecord &record);
std::string itemJson(const OutputItem &item);

/// Random padding that rounds lengths up to a few values.
std::string paddingFor(std::size_t length);

/// Fills a record and emits its events. Not thread-safe.
class ResponseWriter {
public:
  /// The record must outlive it, and has no output yet. `obfuscate`: events
  /// with deltas are padded to few lengths. Events with numbers up to `after`
  /// are counted and not made.
  ResponseWriter(ResponseRecord &record, bool obfuscate, int64_t after = -1)
      : record(record), after(after), obfuscate(obfuscate) {}
  // Without a reply nothing is sent.
  void begin(HttpReply *reply);
  void piece(HttpReply *reply, const Delta &delta);
  /// Call when the record has its final status and usage.
  void end(HttpReply *reply);

  void text(HttpReply *reply, std::string_view piece);
  void reasoning(HttpReply *reply, std::string_view piece);
  void openCall(HttpReply *reply, std::string callId, std::string name);
  void arguments(HttpReply *reply, std::string_view piece);

private:
  bool isWanted() const { return sequence > after; } ///< send the next event
  /// `members` prints the members, if the event is made.
  template <typename Print>
  void send(HttpReply *reply, std::string_view type, const Print &members);
  std::string whole() const;
  ServerEvent event(std::string_view type, std::string_view members);
  /// A message or reasoning.
  void openText(HttpReply *reply, OutputKind kind);
  void addText(HttpReply *reply, OutputKind kind, std::string_view piece);
  void open(HttpReply *reply, OutputItem item);
  std::vector<ServerEvent> closing(bool hasReply);
  void close(HttpReply *reply);
  void grow(HttpReply *reply, std::string_view type, std::string_view piece);
  std::string idOf(std::string_view prefix) const;

  ResponseRecord &record;
  const int64_t after;
  bool obfuscate, isOpen = false;
  int64_t sequence = 0;
};

/// The events so far with numbers above `after`, with their original numbers.
std::vector<ServerEvent> eventsOf(const ResponseRecord &record, bool obfuscate,
                                  int64_t after);

} // namespace tessera::serve
