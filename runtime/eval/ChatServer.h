// Conversations with an OpenAI-compatible server, by /v1/chat/completions.
#pragma once
#include "runtime/client/HttpClient.h"
#include "runtime/eval/EvalModel.h"

namespace tessera::eval {

struct ChatServer {
  client::ServerAddress address;
  std::string model;
  std::string title; ///< in errors: "the server", "the judge"
};

/// The most likely answers to the prompts' chats, eight asked at a time. A
/// server that is busy (429, 502 to 504) is asked again for two minutes. An
/// error is the one of the first prompt that has one.
StatusOr<std::vector<std::string>> askChats(const ChatServer &server,
                                            std::span<const Prompt> prompts,
                                            const GenerationLimits &limits);

/// What the body of an answer that is an error says, on one line.
std::string errorOf(const client::ServerAnswer &answer);

} // namespace tessera::eval
