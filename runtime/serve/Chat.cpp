#include "runtime/serve/Chat.h"

namespace tessera::serve {
namespace {

class ChatMl final : public ChatRenderer {
public:
  StatusOr<std::vector<PromptPart>>
  render(std::span<const ChatMessage> messages) const override {
    std::vector<PromptPart> parts;
    for (const ChatMessage &message : messages) {
      parts.push_back({"<|im_start|>" + message.role + "\n"});
      parts.push_back({message.content, /*isUsers=*/true});
      parts.push_back({"<|im_end|>\n"});
    }
    parts.push_back({"<|im_start|>assistant\n"});
    return parts;
  }
  std::vector<std::string> stops() const override { return {"<|im_end|>"}; }
};

} // namespace

const ChatRenderer &chatMl() {
  static const ChatMl chatMl;
  return chatMl;
}

} // namespace tessera::serve
