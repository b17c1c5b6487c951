// POST /v1/messages: a message of content blocks, and its events.
#include "runtime/serve/Answers.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string printed(const Json &json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ServerEvent eventOf(std::string_view type, Json members) {
  Json event = {{"type", type}};
  event.update(members);
  return {std::string(type), printed(event)};
}

/// With this text; a call without its input.
Json blockJson(const OutputItem &block, std::string_view text) {
  switch (block.kind) {
  case OutputKind::message:
    return {{"type", "text"}, {"text", text}};
  case OutputKind::reasoning: // which is not signed
    return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
  case OutputKind::call:
    break;
  }
  return {{"type", "tool_use"}, {"id", block.callId}, {"name", block.name}};
}

/// A block that has only begun.
Json emptyBlock(const OutputItem &block) {
  Json json = blockJson(block, "");
  if (block.kind == OutputKind::call)
    json["input"] = Json::object();
  return json;
}

/// Whether the model wrote the call's input to its end.
bool isWhole(const OutputItem &block) {
  std::string_view text = block.text;
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.starts_with('{') && Json::accept(text);
}

/// Empty for a call that is not whole.
std::string wholeBlock(const OutputItem &block) {
  if (block.kind != OutputKind::call)
    return printed(blockJson(block, block.text));
  // Spliced, since a model may nest as deep as printing does not go.
  return isWhole(block)
             ? withMember(printed(blockJson(block, "")), "input", block.text)
             : std::string();
}

/// In this API cached tokens are not among the input tokens.
Json messageUsage(const Usage &usage) {
  return {{"input_tokens", usage.prompt - usage.cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached},
          {"output_tokens", usage.generated},
          {"output_tokens_details", {{"thinking_tokens", usage.reasoning}}}};
}

class MessageAnswer final : public Answer {
public:
  MessageAnswer(const ApiRequest &request, AnswerHead head)
      : request(request), head(std::move(head)) {}

  std::string whole(std::span<const WholeChoice> choices,
                    const Usage &usage) override {
    std::string content;
    for (const OutputItem &block : blocks)
      if (std::string one = wholeBlock(block); !one.empty())
        content += (content.empty() ? "" : ",") + one;
    return withMember(printed(message(stopOf(choices[0]), usage)), "content",
                      "[" + content + "]");
  }

  void note(const Delta &delta) override { add(nullptr, delta); }

  // How much of the prompt is cached is known at the end.
  void begin(HttpReply &reply) override {
    Usage usage;
    usage.prompt = head.promptTokens;
    Json started = message(noStop(), usage);
    started["content"] = Json::array();
    send(&reply, eventOf("message_start", {{"message", std::move(started)}}));
    send(&reply, eventOf("ping", Json::object()));
  }

  void delta(HttpReply &reply, const Delta &delta) override {
    add(&reply, delta);
  }

  void end(HttpReply &reply, std::span<const WholeChoice> choices,
           const Usage &usage) override {
    close(&reply);
    const ServerEvent last[] = {
        eventOf("message_delta", {{"delta", stopOf(choices[0])},
                                  {"usage", messageUsage(usage)}}),
        eventOf("message_stop", Json::object())};
    reply.end(last);
  }

  void fail(HttpReply &reply, std::span<const WholeChoice>,
            const ApiError &error) override {
    const ServerEvent last[] = {{"error", error.json(ErrorForm::messages)}};
    reply.end(last);
  }

private:
  static void send(HttpReply *reply, const ServerEvent &event) {
    if (reply)
      reply->event(event.data, event.name);
  }

  static Json noStop() {
    return {{"stop_reason", nullptr}, {"stop_sequence", nullptr}};
  }

  /// Why it ended; a stop string of the chat template is not the client's.
  Json stopOf(const WholeChoice &choice) const {
    const bool isCut = choice.end && choice.end->reason == FinishReason::length;
    const bool isStopped =
        std::ranges::count(request.stop, choice.stopped) != 0;
    const bool hasCalls =
        std::ranges::any_of(blocks, [](const OutputItem &block) {
          return block.kind == OutputKind::call && isWhole(block);
        });
    Json stop = noStop();
    stop["stop_reason"] = isCut       ? "max_tokens"
                          : isStopped ? "stop_sequence"
                          : hasCalls  ? "tool_use"
                                      : "end_turn";
    if (isStopped)
      stop["stop_sequence"] = choice.stopped;
    return stop;
  }

  /// Without its content.
  Json message(const Json &stop, const Usage &usage) const {
    Json all = {{"id", head.id},
                {"type", "message"},
                {"role", "assistant"},
                {"model", head.model}};
    all.update(stop);
    all["usage"] = messageUsage(usage);
    return all;
  }

  void add(HttpReply *reply, const Delta &delta) {
    forEachPart(delta, [&](OutputKind kind, std::string_view text,
                           const CallPiece *begun) {
      if (begun || !isOpen || blocks.back().kind != kind)
        open(reply, kind, begun);
      grow(reply, text);
    });
  }

  void open(HttpReply *reply, OutputKind kind, const CallPiece *call) {
    close(reply);
    isOpen = true;
    OutputItem &block = blocks.emplace_back();
    block.kind = kind;
    if (call) {
      block.callId = call->id;
      block.name = call->name;
    }
    send(reply, eventOf("content_block_start",
                        {{"index", blocks.size() - 1},
                         {"content_block", emptyBlock(block)}}));
  }

  void grow(HttpReply *reply, std::string_view text) {
    if (text.empty())
      return;
    OutputItem &block = blocks.back();
    block.text += text;
    const bool isCall = block.kind == OutputKind::call,
               isText = block.kind == OutputKind::message;
    const char *type = isCall   ? "input_json_delta"
                       : isText ? "text_delta"
                                : "thinking_delta";
    const char *member = isCall ? "partial_json" : isText ? "text" : "thinking";
    send(reply, eventOf("content_block_delta",
                        {{"index", blocks.size() - 1},
                         {"delta", {{"type", type}, {member, text}}}}));
  }

  void close(HttpReply *reply) {
    if (!std::exchange(isOpen, false))
      return;
    send(reply, eventOf("content_block_stop", {{"index", blocks.size() - 1}}));
  }

  const ApiRequest &request;
  AnswerHead head;
  std::vector<OutputItem> blocks;
  bool isOpen = false; ///< the last of them
};

} // namespace

std::unique_ptr<Answer> makeMessage(const ApiRequest &request,
                                    AnswerHead head) {
  return std::make_unique<MessageAnswer>(request, std::move(head));
}

} // namespace tessera::serve
