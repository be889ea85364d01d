
#include <fstream>
#include <iostream>
#include <sstream>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        std::ifstream file(argv[i]), again(argv[i]), missing("missing.txt");
        if (!file || missing) return 9;
        std::stringstream all;
        all << file.rdbuf();
        std::string word;
        again >> word;
        again.clear();
        again.seekg(0, std::ios::end);
        std::cout << all.str().size() << ' ' << again.tellg() << ' ' << word << std::endl;
        again.seekg(1);
        std::getline(again, word);
        std::cout << word << std::endl;
    }
}
