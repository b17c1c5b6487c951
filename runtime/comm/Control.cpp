#include "runtime/comm/Control.h"

#include "runtime/comm/Traffic.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace tessera::comm {

static_assert(std::has_unique_object_representations_v<ControlMessage>,
              "padding would go over the wire");

void ControlMessage::setLine(std::string_view text) {
  const std::size_t length = std::min(text.size(), sizeof(line) - 1);
  std::memcpy(line, text.data(), length);
  std::memset(line + length, 0, sizeof(line) - length);
}

std::string_view ControlMessage::text() const {
  return {line, ::strnlen(line, sizeof(line))};
}

ControlLine::~ControlLine() { close(); }

void ControlLine::close() {
  for (std::list<Message> *messages : {&outgoing, &incoming}) {
    for (const Message &message : *messages)
      transport.cancel(message.request);
    messages->clear();
  }
}

void ControlLine::send(int rank, const ControlMessage &content) {
  Message &message = outgoing.emplace_back();
  message.rank = rank;
  message.content = content;
  StatusOr<Request> request = transport.send(
      rank, Tags::kControl, std::as_bytes(std::span(&message.content, 1)));
  if (request.ok())
    message.request = *request;
  else
    outgoing.pop_back();
}

std::optional<std::pair<int, ControlMessage>> ControlLine::poll() {
  std::erase_if(outgoing, [&](const Message &message) {
    StatusOr<bool> through = transport.test(message.request);
    return !through.ok() || *through;
  });
  StatusOr<std::optional<int>> from = transport.probe(Tags::kControl);
  if (from.ok() && *from) {
    Message &message = incoming.emplace_back();
    message.rank = **from;
    StatusOr<Request> request = transport.receive(
        message.rank, Tags::kControl,
        std::as_writable_bytes(std::span(&message.content, 1)));
    if (request.ok())
      message.request = *request;
    else
      incoming.pop_back();
  }
  for (auto message = incoming.begin(); message != incoming.end();) {
    StatusOr<bool> through = transport.test(message->request);
    if (through.ok() && !*through) {
      ++message;
      continue;
    }
    const bool isWhole =
        through.ok() && message->content.magic == ControlMessage::kMagic;
    const std::pair<int, ControlMessage> arrived(message->rank,
                                                 message->content);
    message = incoming.erase(message);
    if (isWhole)
      return arrived;
  }
  return std::nullopt;
}

} // namespace tessera::comm
