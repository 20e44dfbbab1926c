/* Calls the fuzz target with the bytes of files: for compilers without libFuzzer. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int count, char **arguments) {
    static uint8_t data[1 << 20];
    LLVMFuzzerInitialize(&count, &arguments);
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(arguments[i], "rb");
        if (!file) return perror(arguments[i]), 2;
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        LLVMFuzzerTestOneInput(data, size);
    }
    printf("%d inputs, nothing found\n", count - 1);
    return 0;
}
