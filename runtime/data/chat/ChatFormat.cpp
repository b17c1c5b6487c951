#include "runtime/data/chat/ChatFormat.h"

namespace tessera::chat {

StatusOr<ChatFormat> loadChatFormat(const ModelFiles &files,
                                    tokenizer::Tokenizer tokenizer,
                                    const std::string &source,
                                    const std::vector<std::string> &endOfTurn) {
  StatusOr<EndOfTurn> end = findEndOfTurn(files, tokenizer, endOfTurn);
  if (!end.ok())
    return end.status();
  ChatFormat format{std::move(tokenizer), std::nullopt, end.take()};
  StatusOr<bool> has = ChatTemplate::isIn(files);
  if (!has.ok())
    return has.status();
  if (source.empty() && !*has)
    return format;
  StatusOr<ChatTemplate> loaded = source.empty()
                                      ? ChatTemplate::load(files)
                                      : ChatTemplate::loadFile(source, files);
  if (!loaded.ok())
    return loaded.status();
  format.source = loaded.take();
  return format;
}

} // namespace tessera::chat
