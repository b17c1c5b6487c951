#include "runtime/serve/Responses.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string print(const Json &json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view nameOf(ResponseStatus status) {
  switch (status) {
  case ResponseStatus::queued:
    return "queued";
  case ResponseStatus::inProgress:
    return "in_progress";
  case ResponseStatus::completed:
    return "completed";
  case ResponseStatus::incomplete:
    return "incomplete";
  case ResponseStatus::failed:
    return "failed";
  case ResponseStatus::cancelled:
    return "cancelled";
  }
  return "";
}

Json part(OutputKind kind, std::string_view text) {
  if (kind == OutputKind::reasoning)
    return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

/// An item that has only begun has no text.
Json jsonOfItem(const OutputItem &item, bool isWhole = true) {
  std::string_view status = !isWhole     ? "in_progress"
                            : item.isCut ? "incomplete"
                                         : "completed";
  if (item.kind == OutputKind::call)
    return {{"type", "function_call"},
            {"id", item.id},
            {"call_id", item.callId},
            {"name", item.name},
            {"arguments", isWhole ? item.text : std::string()},
            {"status", status}};
  Json content = Json::array();
  if (isWhole)
    content.push_back(part(item.kind, item.text));
  if (item.kind == OutputKind::reasoning)
    return {{"type", "reasoning"},
            {"id", item.id},
            {"status", status},
            {"summary", Json::array()},
            {"content", std::move(content)}};
  return {{"type", "message"},
          {"id", item.id},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

/// Collects events.
class Collector final : public HttpReply {
public:
  using HttpReply::begin;
  void send(int, std::string_view, std::string, std::string_view) override {}
  void begin(std::span<const ServerEvent>) override {}
  void event(std::string_view data, std::string_view name) override {
    events.push_back({std::string(name), std::string(data)});
  }
  void end(std::span<const ServerEvent> last) override {
    events.insert(events.end(), last.begin(), last.end());
  }
  std::vector<ServerEvent> events;
};

} // namespace

// Spliced by hand: the constant part may be long, and parsing would multiply
// its size.
std::string responseJson(const ResponseRecord &record) {
  std::string_view head = record.constants;
  head.remove_suffix(1); // the closing brace
  Json error, incomplete, usage;
  if (record.status == ResponseStatus::failed)
    error = {{"code", record.isAtFault ? "server_error" : "invalid_prompt"},
             {"message", record.error}};
  if (record.status == ResponseStatus::incomplete)
    incomplete = {{"reason", "max_output_tokens"}};
  if (record.isFinished() && record.usage)
    usage = {
        {"input_tokens", record.usage->prompt},
        {"input_tokens_details", {{"cached_tokens", record.usage->cached}}},
        {"output_tokens", record.usage->generated},
        {"output_tokens_details",
         {{"reasoning_tokens", record.usage->reasoning}}},
        {"total_tokens", record.usage->prompt + record.usage->generated}};
  std::string output;
  if (record.isFinished())
    for (const OutputItem &item : record.output)
      output += (output.empty() ? "" : ",") + itemJson(item);
  return fmt::format(
      R"({}{}"status":"{}","error":{},"incomplete_details":{},"output":[{}],)"
      R"("usage":{}}})",
      head, head.size() > 1 ? "," : "", nameOf(record.status), print(error),
      print(incomplete), output, print(usage));
}

std::string itemJson(const OutputItem &item) { return print(jsonOfItem(item)); }

std::size_t ResponseRecord::bytes() const {
  std::size_t sum = sizeof(*this) + id.size() + constants.size() + error.size();
  for (const OutputItem &item : output)
    sum += sizeof(item) + item.id.size() + item.callId.size() +
           item.name.size() + item.text.size() +
           item.ends.size() * sizeof(item.ends[0]);
  return sum;
}

std::string paddingFor(std::size_t length) {
  static constexpr std::string_view digits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string padding(16 - length % 16, ' ');
  for (char &each : padding)
    each = digits[random() % digits.size()];
  return padding;
}

//===--- events -----------------------------------------------------------===//

/// Numbers the event. `members`: JSON of an object.
ServerEvent ResponseWriter::event(std::string_view type,
                                  std::string_view members) {
  return {std::string(type),
          fmt::format(R"({{"type":"{}","sequence_number":{},{})", type,
                      sequence++, members.substr(1))};
}

template <typename Print>
void ResponseWriter::send(HttpReply *reply, std::string_view type,
                          const Print &members) {
  if (!reply || !isWanted()) {
    ++sequence;
    return;
  }
  ServerEvent made = event(type, members());
  reply->event(made.data, made.name);
}

/// An event about the whole response.
std::string ResponseWriter::whole() const {
  return fmt::format(R"({{"response":{}}})", responseJson(record));
}

void ResponseWriter::begin(HttpReply *reply) {
  record.status =
      record.background ? ResponseStatus::queued : ResponseStatus::inProgress;
  auto response = [&] { return whole(); };
  send(reply, "response.created", response);
  send(reply, record.background ? "response.queued" : "response.in_progress",
       response);
}

std::string ResponseWriter::idOf(std::string_view prefix) const {
  std::string_view id = record.id;
  return fmt::format("{}_{}-{}", prefix, id.substr(id.find('_') + 1),
                     record.output.size());
}

void ResponseWriter::open(HttpReply *reply, OutputItem item) {
  if (record.status == ResponseStatus::queued) {
    record.status = ResponseStatus::inProgress;
    send(reply, "response.in_progress", [&] { return whole(); });
  }
  close(reply);
  isOpen = true;
  send(reply, "response.output_item.added", [&] {
    return print({{"output_index", record.output.size()},
                  {"item", jsonOfItem(item, /*isWhole=*/false)}});
  });
  if (item.kind != OutputKind::call)
    send(reply, "response.content_part.added", [&] {
      return print({{"item_id", item.id},
                    {"output_index", record.output.size()},
                    {"content_index", 0},
                    {"part", part(item.kind, "")}});
    });
  record.output.push_back(std::move(item));
}

/// Without a reply, events are only counted.
std::vector<ServerEvent> ResponseWriter::closing(bool hasReply) {
  std::vector<ServerEvent> events;
  if (!std::exchange(isOpen, false))
    return events;
  const OutputItem &item = record.output.back();
  auto add = [&](std::string_view type, const auto &members) {
    if (hasReply && isWanted())
      events.push_back(event(type, print(members())));
    else
      ++sequence;
  };
  auto placed = [&](const Json &members) {
    Json all = {{"item_id", item.id},
                {"output_index", record.output.size() - 1}};
    all.update(members);
    return all;
  };
  switch (item.kind) {
  case OutputKind::call:
    add("response.function_call_arguments.done", [&] {
      return placed({{"name", item.name}, {"arguments", item.text}});
    });
    break;
  case OutputKind::message:
    add("response.output_text.done", [&] {
      return placed({{"content_index", 0},
                     {"text", item.text},
                     {"logprobs", Json::array()}});
    });
    break;
  case OutputKind::reasoning:
    add("response.reasoning_text.done",
        [&] { return placed({{"content_index", 0}, {"text", item.text}}); });
    break;
  }
  if (item.kind != OutputKind::call)
    add("response.content_part.done", [&] {
      return placed(
          {{"content_index", 0}, {"part", part(item.kind, item.text)}});
    });
  add("response.output_item.done", [&] {
    return Json{{"output_index", record.output.size() - 1},
                {"item", jsonOfItem(item)}};
  });
  return events;
}

void ResponseWriter::close(HttpReply *reply) {
  for (const ServerEvent &each : closing(reply != nullptr))
    reply->event(each.data, each.name);
}

void ResponseWriter::openText(HttpReply *reply, OutputKind kind) {
  OutputItem item;
  item.kind = kind;
  item.id = idOf(kind == OutputKind::reasoning ? "rs" : "msg");
  open(reply, std::move(item));
}

void ResponseWriter::openCall(HttpReply *reply, std::string callId,
                              std::string name) {
  OutputItem item;
  item.kind = OutputKind::call;
  item.id = idOf("fc");
  item.callId = std::move(callId);
  item.name = std::move(name);
  open(reply, std::move(item));
}

void ResponseWriter::grow(HttpReply *reply, std::string_view type,
                          std::string_view piece) {
  OutputItem &item = record.output.back();
  item.text += piece;
  item.ends.push_back(uint32_t(item.text.size()));
  // Written by hand: there is one for every token.
  send(reply, type, [&] {
    return fmt::format(
        R"({{"item_id":"{}","output_index":{}{},"delta":{}{}{}}})", item.id,
        record.output.size() - 1,
        item.kind == OutputKind::call ? "" : R"(,"content_index":0)",
        print(piece),
        item.kind == OutputKind::message ? R"(,"logprobs":[])" : "",
        obfuscate
            ? fmt::format(R"(,"obfuscation":"{}")", paddingFor(piece.size()))
            : "");
  });
}

void ResponseWriter::addText(HttpReply *reply, OutputKind kind,
                             std::string_view piece) {
  if (piece.empty())
    return;
  if (!isOpen || record.output.back().kind != kind)
    openText(reply, kind);
  grow(reply,
       kind == OutputKind::reasoning ? "response.reasoning_text.delta"
                                     : "response.output_text.delta",
       piece);
}

void ResponseWriter::text(HttpReply *reply, std::string_view piece) {
  addText(reply, OutputKind::message, piece);
}

void ResponseWriter::reasoning(HttpReply *reply, std::string_view piece) {
  addText(reply, OutputKind::reasoning, piece);
}

void ResponseWriter::arguments(HttpReply *reply, std::string_view piece) {
  if (!piece.empty())
    grow(reply, "response.function_call_arguments.delta", piece);
}

void ResponseWriter::piece(HttpReply *reply, const Delta &delta) {
  forEachPart(delta, [&](OutputKind kind, std::string_view text,
                         const CallPiece *begun) {
    if (begun)
      openCall(reply, begun->id, begun->name);
    if (kind == OutputKind::call)
      arguments(reply, text);
    else
      addText(reply, kind, text);
  });
}

void ResponseWriter::end(HttpReply *reply) {
  ResponseStatus status = record.status;
  bool isGood = status == ResponseStatus::completed ||
                status == ResponseStatus::incomplete;
  if (record.output.empty() && isGood) {
    // Reported as begun.
    record.status =
        record.background ? ResponseStatus::queued : ResponseStatus::inProgress;
    openText(reply, OutputKind::message);
    record.status = status;
  }
  if (!record.output.empty() && status != ResponseStatus::completed)
    record.output.back().isCut = true;
  std::vector<ServerEvent> last;
  if (isGood)
    last = closing(reply != nullptr);
  std::string_view type =
      status == ResponseStatus::completed    ? "response.completed"
      : status == ResponseStatus::incomplete ? "response.incomplete"
                                             : "response.failed";
  if (reply && isWanted())
    last.push_back(event(type, whole()));
  else
    ++sequence;
  if (reply)
    reply->end(last);
}

std::vector<ServerEvent> eventsOf(const ResponseRecord &record, bool obfuscate,
                                  int64_t after) {
  ResponseRecord copy;
  copy.id = record.id;
  copy.constants = record.constants;
  copy.background = record.background;
  Collector to;
  ResponseWriter writer(copy, obfuscate, after);
  writer.begin(&to);
  for (const OutputItem &item : record.output) {
    if (item.kind == OutputKind::call)
      writer.openCall(&to, item.callId, item.name);
    std::size_t begin = 0;
    for (std::size_t end : item.ends) {
      std::string_view piece =
          std::string_view(item.text).substr(begin, end - begin);
      switch (item.kind) {
      case OutputKind::message:
        writer.text(&to, piece);
        break;
      case OutputKind::call:
        writer.arguments(&to, piece);
        break;
      case OutputKind::reasoning:
        writer.reasoning(&to, piece);
        break;
      }
      begin = end;
    }
  }
  if (record.isFinished()) {
    copy.status = record.status;
    copy.error = record.error;
    copy.usage = record.usage;
    writer.end(&to);
  }
  return std::move(to.events);
}

} // namespace tessera::serve
