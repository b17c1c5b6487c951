// A response of /v1/responses as it grows and as it is kept: its items, the
// events in which they come, and its JSON. The events are made from the items
// alone, so that they can be told again as they were.
#pragma once
#include "runtime/serve/Choice.h"
#include "runtime/serve/HttpServer.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::serve {

struct Usage {
  int64_t prompt = 0, cached = 0, generated = 0;
};

/// A message, or a call of a function.
struct OutputItem {
  bool isCall = false;
  std::string id;
  std::string callId, name;   ///< of a call
  std::string text;           ///< or a call's arguments
  std::vector<uint32_t> ends; ///< of the pieces in which it came
  bool isCut = false;         ///< the last one, by a limit or an error
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
  std::string constants = "{}"; ///< JSON with what never changes
  bool background = false;
  ResponseStatus status = ResponseStatus::inProgress;
  std::string error;     ///< why it failed
  bool isAtFault = true; ///< the server, not the request
  std::vector<OutputItem> output;
  std::optional<Usage> usage;

  bool isFinished() const {
    return status != ResponseStatus::queued &&
           status != ResponseStatus::inProgress;
  }
  std::size_t bytes() const;
};

/// The object; items only of one that is finished.
std::string responseJson(const ResponseRecord &record);
std::string itemJson(const OutputItem &item);

/// Letters that make few lengths of many.
std::string paddingFor(std::size_t length);

/// Fills a record and says so in events. For one thread.
class ResponseWriter {
public:
  /// The record must outlive it, and has no output yet. `obfuscate`: events
  /// with pieces are padded to few lengths. Events with numbers up to `after`
  /// are counted and not made.
  ResponseWriter(ResponseRecord &record, bool obfuscate, int64_t after = -1)
      : record(record), after(after), obfuscate(obfuscate) {}
  // Without a reply nothing is sent.
  void begin(HttpReply *reply);
  void piece(HttpReply *reply, const Delta &delta);
  /// The record has the end's status and its usage; `isOver`: nothing follows.
  void end(HttpReply *reply);

  void text(HttpReply *reply, std::string_view piece);
  void openCall(HttpReply *reply, std::string callId, std::string name);
  void arguments(HttpReply *reply, std::string_view piece);

private:
  bool isWanted() const { return sequence > after; } ///< the next event
  /// `members` prints them, if the event is made.
  template <typename Print>
  void send(HttpReply *reply, std::string_view type, const Print &members);
  std::string whole() const;
  ServerEvent event(std::string_view type, std::string_view members);
  void openMessage(HttpReply *reply);
  void open(HttpReply *reply, OutputItem item);
  std::vector<ServerEvent> closing(bool isTold);
  void close(HttpReply *reply);
  void grow(HttpReply *reply, std::string_view type, std::string_view piece);
  std::string idOf(std::string_view prefix) const;

  ResponseRecord &record;
  const int64_t after;
  bool obfuscate, isOpen = false;
  int64_t sequence = 0;
};

/// The events so far with numbers above `after`, numbered as they were.
std::vector<ServerEvent> eventsOf(const ResponseRecord &record, bool obfuscate,
                                  int64_t after);

/// Whoever listens to a response that is made in the background: they may come
/// late and leave early. Pieces come padded, and lose that for those who did
/// not ask for it.
class Followers final : public HttpReply,
                        public std::enable_shared_from_this<Followers> {
public:
  using HttpReply::begin;
  void send(int, std::string_view, std::string, std::string_view) override {}
  void begin(std::span<const ServerEvent>) override {}
  void event(std::string_view data, std::string_view name) override;
  void end(std::span<const ServerEvent> last) override;
  /// Events with numbers above `after` are sent; `past` are those of them so
  /// far.
  void add(const std::shared_ptr<HttpReply> &reply, int64_t after,
           bool obfuscate, std::span<const ServerEvent> past);

private:
  struct Follower {
    std::shared_ptr<HttpReply> reply;
    int64_t after;
    bool obfuscate;
  };
  std::vector<Follower> followers;
  int64_t next = 0; ///< event's number
};

} // namespace tessera::serve
