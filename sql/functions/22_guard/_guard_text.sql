-- The guard reads a text: its words, and what each of them is.

-- One word -> what it is: s grammar, p preposition or other marker of a role, & conjunction, n negation, q word that
-- only joins a negation in languages of negative concord, #v number, ~v number that is also an everyday word,
-- *v multiplier, ov ordinal, mv month, Mv month that is also an everyday word, wv weekday, $v currency, uv unit,
-- tv clock suffix, % per cent, S common subject that is no name. Of a word in several groups the highest
-- rank holds. Folded to a constant when a caller is planned.
create or replace function memfold_internal._guard_lexicon()
returns jsonb
language sql
immutable
parallel safe
begin atomic
    select pg_catalog.jsonb_object_agg(pg_catalog.split_part(entry.word, '=', 1),
               groups.class || pg_catalog.split_part(entry.word, '=', 2)
               order by groups.rank)
    from (values
        (3, 's', $words$
            . but however mr mrs ms dr madam sir a an the this that these those is are was were be been being am do
            does did done has have had having will would shall should can could may might ca wo i me my mine you
            your yours he him his she her hers it its we us our ours they them their theirs who whom whose which
            what there here also too very really just so then quite itself himself herself themselves oneself 's der
            die das den dem des ein eine einen einem einer eines ist sind war waren sein seine seinen ihr ihre ihren
            er sie es ich wir mich mir dir dich hat haben hatte hatten wird werden wurde wurden dass auch sehr sich
            le la les l un une des du est sont était être a as ai ont avait il elle ils elles on je tu nous vous ce
            cet cette ces son sa ses mon ma mes leur leurs qui que se très aussi y el los las lo uno una unos unas
            es son era ser está están estaba ha han su sus mi mis tu te muy también se gli i il uno è sono era suo
            sua suoi sue mio mia molto anche che o os as um uma uns umas é são era está estão seu sua seus suas meu
            minha muito também это этот эта его её их он она они я мы вы был была было были есть свой свою тоже
            очень de het een zijn haar wordt ook$words$),
        (1, 'S', $words$
            user users customer customers client clients agent agents assistant bot system team teams employee
            employees person people man woman someone everyone everybody anyone patient student speaker author
            caller subject participant developer developers engineer engineers manager member members owner admin
            company service server database app application project meeting today tomorrow yesterday currently now
            likes prefers loves enjoys works lives uses wants needs owns hates dislikes drinks eats plays speaks
            studies moved plans vive reside mora abita prefiere prefere preferisce préfère toma bebe beve boit
            trabaja trabalha lavora travaille utiliza utilizza utilise posee possui possiede possède quiere quer
            vuole veut habla fala parla parle estudia estuda studia étudie mange mangia viaja viaggia voyage juega
            joga gioca joue odia odeia déteste ama aime adora adore habite vit живёт предпочитает пьёт работает
            использует любит говорит изучает учит benutzer benutzerin nutzer nutzerin kunde kundin anwender
            anwenderin utilisateur utilisatrice client cliente usuario usuaria utente usuário usuária пользователь
            пользовательница клиент gebruiker$words$),
        (4, 'p', $words$
            to at by from with in into on onto of off for about over under than as after before during through
            between against towards toward via per since until near behind above below around within like because if
            when while zu zum zur bei beim von vom mit in im ins auf aus nach für über unter als seit bis um durch
            gegen vor hinter neben zwischen wegen wenn weil à au aux de d en dans chez par pour avec sur sous vers
            depuis comme contre entre al del en con por para sobre desde hasta como contra entre di da dal dalla
            dallo in nel nella con su per tra fra come del della dello dei degli delle al alla em na nos nas ao à do
            da dos das com por pelo pela para sobre desde até como в во на с со к ко у о об от до из за под над при
            для по через перед чем как в$words$),
        (5, '&', $words$
            and or & , plus und oder sowie et ou y e u ed и или 和 与 跟 及 或 与 と や$words$),
        (8, 'n', $words$
            not no never without none nobody nothing nowhere neither cannot non aint lack lacks lacking lacked nicht
            kein keine keinen keinem keiner keines nie niemals ohne niemand nichts weder nirgends nirgendwo ne sans
            sin não sem senza не нет без нельзя niet geen nooit zonder inte ingen aldrig utan ikke aldri uden nem
            tidak bukan tanpa không chưa değil yok δεν δε όχι ποτέ χωρίς לא אין בלי לא لا لم لن ليس ليست بدون नहीं
            मत बिना ні нема nie bez 안$words$),
        (7, 'q', $words$
            pas jamais rien aucun aucune nunca nada nadie ningún ninguno ninguna jamás tampoco nessuno nessuna
            niente nulla ninguém nenhum nenhuma никогда ничего никто никого nigdy nikt nic$words$),
        (6, '#', $words$
            zero=0 two=2 three=3 four=4 five=5 six=6 seven=7 eight=8 nine=9 ten=10 eleven=11 twelve=12 thirteen=13
            fourteen=14 fifteen=15 sixteen=16 seventeen=17 eighteen=18 nineteen=19 twenty=20 thirty=30 forty=40
            fifty=50 sixty=60 seventy=70 eighty=80 ninety=90 zwei=2 drei=3 vier=4 fünf=5 sechs=6 sieben=7 neun=9
            zehn=10 zwölf=12 dreizehn=13 vierzehn=14 fünfzehn=15 sechzehn=16 siebzehn=17 achtzehn=18 neunzehn=19
            zwanzig=20 dreißig=30 vierzig=40 fünfzig=50 sechzig=60 siebzig=70 achtzig=80 neunzig=90 deux=2 trois=3
            quatre=4 cinq=5 sept=7 huit=8 dix=10 onze=11 douze=12 treize=13 quatorze=14 quinze=15 seize=16 vingt=20
            trente=30 quarante=40 cinquante=50 soixante=60 cero=0 dos=2 tres=3 cuatro=4 cinco=5 seis=6 siete=7
            ocho=8 nueve=9 diez=10 doce=12 trece=13 catorce=14 quince=15 dieciséis=16 diecisiete=17 dieciocho=18
            diecinueve=19 veinte=20 treinta=30 cuarenta=40 cincuenta=50 sesenta=60 setenta=70 ochenta=80 noventa=90
            tre=3 quattro=4 cinque=5 sette=7 otto=8 dieci=10 undici=11 dodici=12 tredici=13 quattordici=14
            quindici=15 sedici=16 diciassette=17 diciotto=18 diciannove=19 venti=20 trenta=30 quaranta=40
            cinquanta=50 sessanta=60 settanta=70 ottanta=80 novanta=90 dois=2 duas=2 três=3 quatro=4 sete=7 oito=8
            dez=10 doze=12 treze=13 dezesseis=16 dezessete=17 dezoito=18 dezenove=19 vinte=20 trinta=30 quarenta=40
            cinquenta=50 sessenta=60 noventa=90 два=2 две=2 двух=2 три=3 трёх=3 четыре=4 пять=5 шесть=6 семь=7
            восемь=8 девять=9 десять=10 одиннадцать=11 двенадцать=12 двадцать=20 тридцать=30 сорок=40 пятьдесят=50
            twee=2 drie=3 vijf=5 zes=6 zeven=7 negen=9 tien=10$words$),
        (6, '~', $words$
            one=1 eins=1 acht=8 elf=11 neuf=9 due=2 sei=6 nove=9 один=1 одна=1 null=0$words$),
        (6, '*', $words$
            hundred=100 thousand=1000 million=1000000 billion=1000000000 dozen=12 k=1000 bn=1000000000 mn=1000000
            hundert=100 tausend=1000 millionen=1000000 milliarden=1000000000 cent=100 mille=1000 millions=1000000
            milliards=1000000000 cien=100 ciento=100 mil=1000 millones=1000000 millón=1000000 cento=100 mila=1000
            milioni=1000000 cem=100 milhões=1000000 milhão=1000000 сто=100 тысяча=1000 тысяч=1000 тысячи=1000
            миллион=1000000 миллиона=1000000 миллионов=1000000$words$),
        (2, 'o', $words$
            first=1 second=2 third=3 fourth=4 fifth=5 sixth=6 seventh=7 eighth=8 ninth=9 tenth=10 erste=1 ersten=1
            erster=1 zweite=2 zweiten=2 zweiter=2 dritte=3 dritten=3 dritter=3 vierte=4 vierten=4 premier=1
            première=1 deuxième=2 troisième=3 quatrième=4 primero=1 primera=1 segundo=2 segunda=2 tercero=3
            tercera=3 primeiro=1 primeira=1 terceiro=3 terceira=3 первый=1 первая=1 второй=2 вторая=2 третий=3
            третья=3$words$),
        (6, 'm', $words$
            january=1 february=2 april=4 june=6 july=7 august=8 september=9 october=10 november=11 december=12
            januar=1 jänner=1 februar=2 märz=3 juni=6 juli=7 oktober=10 dezember=12 janvier=1 février=2 avril=4
            juin=6 juillet=7 août=8 septembre=9 octobre=10 novembre=11 décembre=12 enero=1 febrero=2 marzo=3 abril=4
            mayo=5 junio=6 julio=7 agosto=8 septiembre=9 octubre=10 noviembre=11 diciembre=12 gennaio=1 febbraio=2
            aprile=4 maggio=5 giugno=6 luglio=7 settembre=9 ottobre=10 novembre=11 dicembre=12 janeiro=1 fevereiro=2
            março=3 maio=5 junho=6 julho=7 setembro=9 outubro=10 novembro=11 dezembro=12 январь=1 января=1 январе=1
            февраль=2 февраля=2 феврале=2 марта=3 марте=3 апрель=4 апреля=4 апреле=4 мая=5 июнь=6 июня=6 июне=6
            июль=7 июля=7 июле=7 август=8 августа=8 августе=8 сентябрь=9 сентября=9 сентябре=9 октябрь=10 октября=10
            октябре=10 ноябрь=11 ноября=11 ноябре=11 декабрь=12 декабря=12 декабре=12$words$),
        (6, 'M', $words$
            may=5 march=3 mai=5 mars=3 jan=1 feb=2 mar=3 apr=4 jun=6 jul=7 aug=8 sep=9 oct=10 okt=10 nov=11 dec=12
            dez=12 ene=1 abr=4 ago=8 dic=12 févr=2 avr=4 juil=7 déc=12 май=5 мае=5 март=3$words$),
        (6, 'w', $words$
            monday=1 tuesday=2 wednesday=3 thursday=4 friday=5 saturday=6 sunday=7 mondays=1 tuesdays=2 wednesdays=3
            thursdays=4 fridays=5 saturdays=6 sundays=7 montag=1 dienstag=2 mittwoch=3 donnerstag=4 freitag=5
            samstag=6 sonnabend=6 sonntag=7 montags=1 dienstags=2 mittwochs=3 donnerstags=4 freitags=5 samstags=6
            sonntags=7 lundi=1 mardi=2 mercredi=3 jeudi=4 vendredi=5 samedi=6 dimanche=7 lundis=1 mardis=2
            mercredis=3 jeudis=4 vendredis=5 samedis=6 dimanches=7 lunes=1 martes=2 miércoles=3 jueves=4 viernes=5
            sábado=6 domingo=7 sábados=6 domingos=7 lunedì=1 martedì=2 mercoledì=3 giovedì=4 venerdì=5 sabato=6
            domenica=7 понедельник=1 понедельникам=1 вторник=2 вторникам=2 среда=3 среду=3 средам=3 четверг=4
            четвергам=4 пятница=5 пятницу=5 пятницам=5 суббота=6 субботу=6 субботам=6 воскресенье=7 воскресеньям=7
            maandag=1 dinsdag=2 woensdag=3 donderdag=4 vrijdag=5 zaterdag=6 zondag=7$words$),
        (2, '$', $words$
            $=$ €=€ £=£ ¥=¥ ₹=₹ ₽=₽ ₩=₩ ₺=₺ ₴=₴ ₪=₪ ฿=฿ usd=$ dollar=$ dollars=$ dólar=$ dólares=$ dollari=$
            доллар=$ доллара=$ долларов=$ eur=€ euro=€ euros=€ евро=€ gbp=£ sterling=£ jpy=¥ yen=¥ cny=yuan rmb=yuan
            yuan=yuan chf=chf franken=chf francs=francs inr=₹ rupee=₹ rupees=₹ rub=₽ ruble=₽ rubles=₽ рубль=₽
            рубля=₽ рублей=₽ krw=₩ cad=cad aud=aud sek=sek nok=nok dkk=dkk pln=pln zloty=pln brl=brl reais=brl
            mxn=mxn peso=peso pesos=peso btc=btc bitcoin=btc eth=eth$words$),
        (2, 'u', $words$
            kg=kg kilo=kg kilos=kg kilogram=kg kilograms=kg kilogramm=kg kilogramme=kg kilogrammes=kg kilogramos=kg
            кг=kg g=g gram=g grams=g gramm=g mg=mg lb=lb lbs=lb pound=lb pounds=lb pfund=lb oz=oz ounce=oz ounces=oz
            t=t tonne=t tonnes=t ton=ton tons=ton km=km kilometer=km kilometers=km kilometre=km kilometres=km
            kilómetros=km kilomètres=km км=km m=m meter=m meters=m metre=m metres=m metros=m mètres=m cm=cm
            centimeter=cm centimeters=cm centimetre=cm centimetres=cm mm=mm millimeter=mm millimeters=mm mile=mi
            miles=mi meilen=mi millas=mi milles=mi ft=ft foot=ft feet=ft inch=in inches=in zoll=in yard=yd yards=yd
            l=l liter=l liters=l litre=l litres=l litros=l ml=ml gallon=gal gallons=gal b=b byte=b bytes=b kb=kb
            mb=mb gb=gb tb=tb kib=kib mib=mib gib=gib tib=tib megabyte=mb megabytes=mb gigabyte=gb gigabytes=gb
            terabyte=tb terabytes=tb °c=°c celsius=°c °f=°f fahrenheit=°f hz=hz khz=khz mhz=mhz ghz=ghz w=w kw=kw
            mw=mw kwh=kwh v=v ms=ms millisecond=ms milliseconds=ms millisekunden=ms sec=s secs=s seconds=s sekunde=s
            sekunden=s secondes=s segundos=s secondi=s секунд=s min=min mins=min minute=min minutes=min minuten=min
            minuto=min minutos=min minuti=min минут=min минуты=min h=h hr=h hrs=h hour=h hours=h stunde=h stunden=h
            heure=h heures=h hora=h horas=h ora=h ore=h час=h часа=h часов=h day=d days=d tag=d tage=d tagen=d
            jour=d jours=d día=d días=d giorno=d giorni=d dia=d dias=d день=d дня=d дней=d week=wk weeks=wk woche=wk
            wochen=wk semaine=wk semaines=wk semana=wk semanas=wk settimana=wk settimane=wk неделя=wk недели=wk
            недель=wk month=mo months=mo monat=mo monate=mo monaten=mo mois=mo mes=mo meses=mo mese=mo mesi=mo
            mês=mo месяц=mo месяца=mo месяцев=mo year=y years=y jahr=y jahre=y jahren=y ans=y année=y années=y año=y
            años=y anno=y anni=y ano=y anos=y год=y года=y лет=y$words$),
        (4, 't', $words$
            am=0 pm=12 uhr=0 o'clock=0 oclock=0$words$),
        (6, '%', $words$
            % percent pct prozent porcento pourcent процент процента процентов$words$)
    ) as groups(rank, class, words)
    cross join lateral pg_catalog.string_to_table(
        pg_catalog.translate(groups.words, E'\n', ' '), ' ') as entry(word)
    where entry.word <> '';
end;
revoke all on function memfold_internal._guard_lexicon() from public;

-- Chinese numerals before a counter as digits, weekdays of Chinese and Japanese as English words.
create or replace function memfold_internal._guard_han_numbers(content text)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_text text collate "C" := content;
    v_days constant text[] := '{monday,tuesday,wednesday,thursday,friday,saturday,sunday}'::text[];
    v_match text[];
    v_total bigint;
    v_digit bigint;
    v_value integer;
    v_from integer;
    v_rest text collate "C";
begin
    if v_text ~ '[曜期拜周週]' then
        for v_value in 1..7 loop
            v_text := replace(v_text, substr('月火水木金土日', v_value, 1) || '曜', ' ' || v_days[v_value] || ' ');
        end loop;
        v_text := regexp_replace(v_text, '(?:星期|禮拜|礼拜|[周週])(?=[一二三四五六日天])', E'\x03', 'g');
        for v_value in 1..7 loop
            v_text := replace(v_text, E'\x03' || substr('一二三四五六日', v_value, 1), ' ' || v_days[v_value] || ' ');
        end loop;
        v_text := replace(v_text, E'\x03天', ' sunday ');
    end if;
    v_rest := v_text;
    v_text := '';
    loop
        -- on in what is left: from the beginning each time, a page of numerals would take the square of its length
        v_match := regexp_match(
            v_rest, '(一[〇零一二两兩三四五六七八九十百千]{1,9}|[二两兩三四五六七八九十百][〇零一二两兩三四五六七八九十百千]{0,9})'
            || '(?=[个個只隻条條位名张張本年月日号號天岁歲歳点點时時分秒次回台臺件匹杯人枚头頭公里米元円块塊种種家間间套门門])');
        exit when v_match is null;
        v_total := 0;
        v_digit := 0;
        for v_place in 1..length(v_match[1]) loop
            v_value := position(substr(v_match[1], v_place, 1) in '一二三四五六七八九十百千');
            case
                when v_value = 0 then
                    v_digit := case when substr(v_match[1], v_place, 1) in ('两', '兩') then 2 else v_digit * 10 end;
                when v_value < 10 then
                    v_digit := v_digit * 10 + v_value;
                else
                    v_total := v_total + greatest(v_digit, 1) * (10 ^ (v_value - 9))::bigint;
                    v_digit := 0;
            end case;
        end loop;
        v_from := position(v_match[1] in v_rest);
        v_text := v_text || left(v_rest, v_from - 1) || (v_total + v_digit)::text;
        v_rest := substr(v_rest, v_from + length(v_match[1]));
    end loop;
    return v_text || v_rest;
end;
$function$;
revoke all on function memfold_internal._guard_han_numbers(text) from public;

-- A text as tokens between single spaces: canonical, words that began with a capital marked by U+0001, contractions
-- written out, hyphens of plain words opened, thousands separators gone, '.' and ',' tokens of their own, every
-- ideograph and every run of katakana a token.
create or replace function memfold_internal._guard_text(content text)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_text text collate "C";
    v_is_wide boolean;
    v_parts text[];
    v_part text collate "C";
    v_place integer;
begin
    v_text := memfold.canonicalize(
        regexp_replace(
            content collate "C",
            E'(^|[^A-Za-z0-9À-ɏͰ-ӿԱ-և''’_@./:\\\\-]|[^A-Za-z0-9À-ɏͰ-ӿԱ-և _@./:]-)'
            || '([A-ZÀ-ÖØ-ÞĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮİĲĴĶĹĻĽĿŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŸŹŻŽΆΈ-ΏΑ-ΫЀ-ЯҐԱ-Ֆ])',
            E'\\1\x01\\2', 'g'),
        'prose/1');

    if v_text !~ E'[^ a-z\\x01]' then
        return v_text;
    end if;

    v_is_wide := octet_length(v_text) > length(v_text);

    -- one character for what is written in several ways; brackets and quotation marks say nothing here
    v_text := translate(
        v_text,
        E';!?\uFF1B\uFF01\uFF1F\u3002\uFF61\uFF0C\u3001\uFF64\u2019\u2018\u02BC\u2013\u2212\u2010\u2011\u2012'
        || E'"()[]{}<>*`~|^\\\u2026\u00B7\u2022\u00BF\u00A1\u2014\u201C\u201D\u201E\u00AB\u00BB\u2039\u203A'
        || E'\u300C\u300D\u300E\u300F\u3010\u3011\u300A\u300B\u30FB',
        '........,,,''''''-----                                            ');

    if v_is_wide and v_text ~ E'[\u2E80-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF]' then
        if v_text ~ '[二两兩三四五六七八九十百曜期拜周週]' then
            v_text := memfold_internal._guard_han_numbers(v_text);
        end if;
        v_text := regexp_replace(
            v_text, E'([\u30A1-\u30FA\u30FC]+|[\u2E80-\u30A0\u3400-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF])',
            E' \\1 ', 'g');
    end if;

    if v_is_wide and v_text ~ E'[\u0660-\u0669\u06F0-\u06F9\u0966-\u096F\u09E6-\u09EF\u0E50-\u0E59]' then
        v_text := translate(v_text, '٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹०१२३४५६७८९০১২৩৪৫৬৭৮৯๐๑๒๓๔๕๖๗๘๙',
                            '01234567890123456789012345678901234567890123456789');
    end if;

    if position('''' in v_text) > 0 then
        v_text := replace(replace(replace(v_text, 'can''t', 'can not'), 'won''t', 'will not'), 'n''t', ' not');
        v_text := replace(v_text, 'o''clock', 'oclock');
        v_text := replace(replace(replace(replace(replace(replace(v_text,
            '''re', ' are'), '''ve', ' have'), '''ll', ' will'), '''d ', ' would '), 'i''m ', 'i am '), '''s', ' ''s ');
        v_text := regexp_replace(v_text, E'((?:^| )\\x01?(?:n|l|d|j|qu|c|s|m|t|un|dell|nell|all|dall|sull|quest))''',
                                 E'\\1e ', 'g');
        v_text := replace(replace(v_text, ' ''s ', E' \x02 '), '''', ' ');
        v_text := replace(v_text, E'\x02', '''s');
    end if;

    if position('$' in v_text) > 0 or position('%' in v_text) > 0 or v_is_wide and v_text ~ '[€£¥₹₽₩₺₴₪฿]' then
        v_text := regexp_replace(v_text, '(-?)([$€£¥₹₽₩₺₴₪฿])', E' \\2 \\1', 'g');
        v_text := replace(v_text, '%', ' % ');
    end if;

    if v_text ~ '[0-9]' then
        -- ISO dates keep their hyphens as U+0002; a range is two numbers; 8-year opens, AB-12 does not
        if position('-' in v_text) > 0 then
            v_text := regexp_replace(v_text, '(?<![0-9])([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])(t(?=[0-9]))?',
                                     E'\\1\x02\\2\x02\\3 ', 'g');
            v_text := regexp_replace(v_text, '((?:^| )[0-9.]+)-(?=[^ 0-9./:@_]{2}|[0-9])', E'\\1 ', 'g');
        end if;
        if v_text ~ '[0-9][,''][0-9]' then
            v_text := regexp_replace(v_text, '(?<=[0-9])[,''](?=[0-9]{3}(?![0-9]))', '', 'g');
            v_text := regexp_replace(v_text, '(?<=[0-9]),(?=[0-9])', '.', 'g');
        end if;
        if v_text ~ '[0-9][a-z°]' then
            v_text := regexp_replace(
                v_text,
                '((?:^|[- ])[0-9.]+)(kg|g|mg|lbs?|oz|km|m|cm|mm|mi|ft|in|l|ml|[kmgt]i?b|[kmg]?hz|k?wh?|ms|'
                || 'min|hrs?|h|d|am|pm|k|bn|mn|°[cf]|[kmg]?bps|mph)(?=[ .,]|$)', E'\\1 \\2', 'g');
        end if;
    end if;

    if position('-' in v_text) > 0 or position('/' in v_text) > 0 then
        -- (words of letters alone; their first and last characters stay, and what stands between is marked out, for
        -- a pattern that looks ahead from each hyphen takes the square of the length of a word)
        v_text := regexp_replace(
            v_text, '((?:^| )[^ 0-9./:@_])([^ 0-9./:@_]*-[^ 0-9./:@_]*)(?=[^ 0-9./:@_](?:[ .:,]|$))', E'\\1\x04\\2\x05',
            'g');
        if position(E'\x04' in v_text) > 0 then
            v_parts := string_to_array(v_text, E'\x04');
            v_text := v_parts[1];
            foreach v_part in array v_parts[2:] loop
                v_place := position(E'\x05' in v_part);
                v_text := v_text || replace(left(v_part, v_place), '-', ' ') || substr(v_part, v_place + 1);
            end loop;
            v_text := replace(v_text, E'\x05', '');
        end if;
        v_text := regexp_replace(
            v_text, '((?:^| )[^ 0-9./:@_]+)/(?=[^ 0-9./:@_]+(?:[ .,:]|$))', E'\\1 ', 'g');
        v_text := regexp_replace(v_text, '[-/]+(?= |$)|(?<=^| )-+(?=[^ 0-9.])', ' ', 'g');
    end if;

    if position('.' in v_text) > 0 or position(',' in v_text) > 0 or position(':' in v_text) > 0 then
        -- u.s. and p.m. are words; a stop or comma at the end of a word is a token
        if v_text ~ E'[a-z]\\.[a-z]' then
            v_text := regexp_replace(
                v_text, E'((?:^| )\\x01?[a-z])\\.([a-z])\\.?(?:([a-z])\\.?)?(?=[ ,]|$)', E'\\1\\2\\3', 'g');
        end if;
        if position('..' in v_text) > 0 or position('.,' in v_text) > 0 or position(':.' in v_text) > 0
            or right(v_text, 1) in ('.', ':')
        then
            v_text := regexp_replace(v_text, '[.:]*[.][.:]*(?=[ ,]|$)', ' . ', 'g');
        end if;
        v_text := replace(replace(v_text || ' ', '. ', ' . '), ': ', ' ');
        if position(',' in v_text) > 0 then
            v_text := regexp_replace(v_text, '(?<![0-9]),|,(?![0-9])', ' , ', 'g');
        end if;
    end if;

    return array_to_string(array_remove(string_to_array(v_text, ' '), ''), ' ');
end;
$function$;
revoke all on function memfold_internal._guard_text(text) from public;

create or replace function memfold_internal._guard_classes(tokens text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
begin
    return array(
        select memfold_internal._guard_lexicon() ->> listed.token
        from unnest(tokens) with ordinality as listed(token, place)
        order by listed.place);
end;
$function$;
revoke all on function memfold_internal._guard_classes(text[]) from public;
