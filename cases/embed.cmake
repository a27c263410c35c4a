# Writes a C++ file whose arrays are the bytes of a file: cmake -DINPUT= -DOUTPUT= -P embed.cmake
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(........................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "// Generated from the recording of Gemma 3 270M, cases/recorded.
namespace qkvfuse::cases {
extern const unsigned char kGemma3Bytes[] = {
${bytes}
};
}  // namespace qkvfuse::cases
")
